// SPDX-License-Identifier: Apache-2.0
// Unit tests of the native library, with a main of their own: one line per failure, exit code 1 if there was one.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/arena.h"
#include "core/delegate.h"
#include "core/fixed_point.h"
#include "core/options.h"
#include "core/thread_pool.h"
#include "kernels/registry.h"
#include "ops/broadcast.h"
#include "ops/gemm.h"
#include "tests/fake_graph.h"

namespace litesmith {

#if defined(__x86_64__)
void FillAvx512VnniPlain(KernelTable* table);
void FillAvx512Int16Plain(KernelTable* table);
void FillAvx512FloatPlain(KernelTable* table);
#endif

namespace {

int failures = 0;

// All tiers, and that of AVX-512 also with its intrinsics written out as loops.
std::vector<Tier> TestedTiers() {
  std::vector<Tier> tiers = Tiers();
#if defined(__x86_64__)
  const Tier* avx2 = FindTier("avx2");
  if (avx2->table != nullptr) {
    static KernelTable plain = *avx2->table;
    plain.tier = "avx512 for tests";
    FillAvx512VnniPlain(&plain);
    FillAvx512Int16Plain(&plain);
    FillAvx512FloatPlain(&plain);
    tiers.push_back({plain.tier, &plain, avx2->cpu_has_it, true});
  }
#endif
  return tiers;
}

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::printf("%s:%d: %s is false\n", __FILE__, __LINE__, #condition);    \
      ++failures;                                                             \
    }                                                                         \
  } while (false)

void EveryKernelOfEveryTierEqualsTheReference() {
  for (const Tier& tier : TestedTiers()) {
    if (tier.table == nullptr) {
      std::printf("tier %s: not on this processor, skipped\n", tier.name);
      continue;
    }
    for (unsigned seed = 1; seed <= 25; ++seed) {
      const std::string difference = VerifyTable(*tier.table, seed);
      if (!difference.empty()) {
        std::printf("tier %s, seed %u: %s\n", tier.name, seed, difference.c_str());
        ++failures;
      }
    }
    std::printf("tier %s: compared with the reference\n", tier.name);
  }
}

void VerificationCanFail() {
  KernelTable broken = ScalarTable();
  broken.s16_mul.run = [](const int16_t*, const int16_t*, int n, const ScaleView&, int16_t* out) {
    for (int i = 0; i < n; ++i) out[i] = 12345;
  };
  CHECK(!VerifyTable(broken, 1).empty());
}

int Claimed(FakeGraph* graph, const KernelTable* kernels, std::string* said) {
  Delegate delegate(Options{}, kernels, kernels == nullptr ? "no tier for a test" : "");
  CHECK(delegate.abi()->Prepare(&graph->context, delegate.abi()) == kTfLiteOk);
  *said = delegate.DecisionsJson();
  return graph->claimed;
}

// A graph that reads wrongly in any place means that the runtime's structures are others than ours.
void NothingIsClaimedWhereTheGraphLooksWrong() {
  std::string said;
  FakeGraph whole;
  CHECK(Claimed(&whole, &ScalarTable(), &said) == 1);
  const std::vector<std::pair<const char*, std::function<void(FakeGraph*)>>> faults = {
      {"impossible type", [](FakeGraph* g) { g->tensors[1].type = static_cast<TfLiteType>(99); }},
      {"impossible allocation", [](FakeGraph* g) { g->tensors[0].allocation_type = static_cast<TfLiteAllocationType>(77); }},
      {"impossible rank", [](FakeGraph* g) { g->tensors[0].dims->size = 1 << 20; }},
      {"impossible dimension", [](FakeGraph* g) { g->tensors[0].dims->data[1] = -9; }},
      {"another number of bytes",
       [](FakeGraph* g) {
         g->tensors[0].allocation_type = kTfLiteMmapRo;
         g->tensors[0].data = g;
         g->tensors[0].bytes = 7;
       }},
      {"impossible operator code", [](FakeGraph* g) { g->registration.builtin_code = 123456; }},
      {"tensors that do not exist", [](FakeGraph* g) { g->inputs[2] = 3; }},
      {"function of the context is missing", [](FakeGraph* g) { g->context.ResizeTensor = nullptr; }},
      {"number of threads", [](FakeGraph* g) { g->context.recommended_num_threads = 1 << 20; }},
      {"number of tensors", [](FakeGraph* g) { g->context.tensors_size = size_t{1} << 40; }},
      {"plan cannot be read",
       [](FakeGraph* g) { g->context.GetExecutionPlan = [](TfLiteContext*, TfLiteIntArray**) { return kTfLiteError; }; }},
  };
  for (const auto& [words, apply] : faults) {
    FakeGraph graph;
    apply(&graph);
    const int claimed = Claimed(&graph, &ScalarTable(), &said);
    if (claimed != 0 || said.find(words) == std::string::npos) {
      std::printf("%s: %d claimed, %s\n", words, claimed, said.c_str());
      ++failures;
    }
  }
}

void AnAbsentInputIsNotRead() {
  std::string said;
  FakeGraph graph;
  graph.inputs[2] = kTfLiteOptionalTensor;
  CHECK(Claimed(&graph, &ScalarTable(), &said) == 0);
  CHECK(said.find("absent") != std::string::npos);
}

void NothingIsClaimedWithoutATier() {
  std::string why, said;
  const std::vector<Tier> none = {{"avx2", nullptr, [] { return false; }, false},
                                  {"scalar", &ScalarTable(), [] { return true; }, false}};
  CHECK(ChooseTier("auto", &why, none) == nullptr && why.find("lacks tier avx2") != std::string::npos);
  FakeGraph graph;
  CHECK(Claimed(&graph, nullptr, &said) == 0 && said.find("no tier for a test") != std::string::npos);
}

void ATierIsVerifiedOnce() {
  static int calls = 0;
  static KernelTable broken = ScalarTable();
  broken.s16_mul.run = [](const int16_t*, const int16_t*, int n, const ScaleView&, int16_t* out) {
    ++calls;
    for (int i = 0; i < n; ++i) out[i] = 12345;
  };
  const std::vector<Tier> tiers = {{"broken", &broken, [] { return true; }, true}};
  std::string why;
  CHECK(ChooseTier("auto", &why, tiers) == nullptr && why.find("failed its self-check") != std::string::npos);
  const int after_the_first = calls;
  CHECK(after_the_first > 0);
  CHECK(ChooseTier("broken", &why, tiers) == nullptr && why.find("failed its self-check") != std::string::npos);
  CHECK(calls == after_the_first);
}

void RequantEqualsTheDefinition() {
  std::mt19937 rng(3);
  for (int round = 0; round < 200; ++round) {
    const int n = 1 + static_cast<int>(rng() % 40);
    std::vector<FixedMultiplier> multipliers;
    std::vector<int64_t> bias;
    for (int c = 0; c < n; ++c) {
      multipliers.push_back(QuantizeMultiplier(std::uniform_real_distribution<double>(1e-7, 2.0)(rng)));
      bias.push_back(static_cast<int64_t>(rng()) * 1000 - (int64_t{1} << 40));
    }
    Requant requant;
    requant.Build(multipliers, bias, std::vector<int64_t>(n, int64_t{1} << 31), -30000, 31000);
    std::vector<int32_t> acc((n + kPanel - 1) / kPanel * kPanel);
    for (auto& x : acc) x = static_cast<int32_t>(rng());
    std::vector<int16_t> got(n);
    ScalarTable().requant_s32_s16.run(acc.data(), 0, 1, n, requant.View(0), got.data(), n);
    for (int c = 0; c < n; ++c) CHECK(got[c] == ClampInt(MultiplyAcc64(acc[c] + bias[c], multipliers[c]), -30000, 31000));
  }
}

// Where 32 bits are enough they are used, on every tier, and give what 64 bits give.
void NarrowRequantEqualsTheDefinition() {
  std::mt19937 rng(4);
  const auto between = [&](double lo, double hi) { return std::uniform_real_distribution<double>(lo, hi)(rng); };
  for (const Tier& tier : TestedTiers()) {
    if (tier.table == nullptr) continue;
    for (int n : {1, 15, 16, 33, 64, 70}) {
      std::vector<FixedMultiplier> multipliers;
      std::vector<int64_t> bias, reach(n, 1 << 30);
      for (int c = 0; c < n; ++c) {
        multipliers.push_back(QuantizeMultiplier(c % 9 == 4 ? 0.0 : std::exp(between(-22.0, -1.4))));
        bias.push_back(static_cast<int64_t>(between(-1e9, 1e9)));
      }
      bias[0] = INT32_MAX - reach[0];
      Requant requant;
      requant.Build(multipliers, bias, reach, -32768, 32767);
      CHECK(requant.View(0).narrow.bias != nullptr);
      const int padded = (n + kPanel - 1) / kPanel * kPanel;
      std::vector<int32_t> acc(padded);
      for (auto& x : acc) x = static_cast<int32_t>(between(-(1 << 30), 1 << 30));
      acc[0] = 1 << 30;
      std::vector<int16_t> got(n);
      tier.table->requant_s32_s16.run(acc.data(), 0, 1, n, requant.View(0), got.data(), n);
      for (int c = 0; c < n; ++c) CHECK(got[c] == ClampInt(MultiplyAcc64(acc[c] + bias[c], multipliers[c]), -32768, 32767));
      bias[0] += 1;
      requant.Build(multipliers, bias, reach, -32768, 32767);
      CHECK(requant.View(0).narrow.bias == nullptr);
      bias[0] = 0;
      multipliers[0] = QuantizeMultiplier(0.6);
      requant.Build(multipliers, bias, reach, -32768, 32767);
      CHECK(requant.View(0).narrow.bias == nullptr);
    }
  }
}

// All weights at their extremes and all inputs at -32768: every bound is met exactly.
void GemmIsExactAtTheExtremes() {
  for (const Tier& tier : TestedTiers()) {
    if (tier.table == nullptr) continue;
    for (int k : {511, 512, 513, 2049, 4608}) {
      for (int8_t weight : {int8_t{-128}, int8_t{127}, int8_t{-127}}) {
        const int n = 19, m = 7;
        PackedGemm gemm;
        const std::vector<int8_t> weights(static_cast<size_t>(n) * k, weight);
        gemm.Pack(*tier.table, weights.data(), k, n, k);
        const FixedMultiplier multiplier = QuantizeMultiplier(1e-5);
        const std::vector<int64_t> bias(n, 123456789012);
        gemm.SetRequant(std::vector<FixedMultiplier>(n, multiplier), bias, -32768, 32767);
        std::vector<int16_t> a(static_cast<size_t>(m) * gemm.k_padded(), 0);
        std::vector<const int16_t*> rows(m);
        for (int i = 0; i < m; ++i) {
          rows[i] = a.data() + static_cast<size_t>(i) * gemm.k_padded();
          for (int j = 0; j < k; ++j) a[static_cast<size_t>(i) * gemm.k_padded() + j] = i % 2 ? 32767 : -32768;
        }
        std::vector<int16_t> out(static_cast<size_t>(m) * n, 0);
        gemm.Run(rows.data(), m, 0, gemm.num_panels(), out.data(), n);
        for (int i = 0; i < m; ++i) {
          const int64_t sum = static_cast<int64_t>(k) * weight * (i % 2 ? 32767 : -32768) + bias[0];
          const int32_t want = ClampInt(MultiplyAcc64(sum, multiplier), -32768, 32767);
          for (int c = 0; c < n; ++c) CHECK(out[static_cast<size_t>(i) * n + c] == want);
        }
      }
    }
  }
}

void ArenaNeverOverlapsTheLiving() {
  std::mt19937 rng(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<ArenaRequest> requests;
    for (int i = 0; i < 30; ++i) {
      const int first = static_cast<int>(rng() % 20);
      requests.push_back({rng() % 5000, first, first + static_cast<int>(rng() % 6)});
    }
    const ArenaPlan plan = PlanArena(requests);
    size_t sum = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      sum += requests[i].bytes + 128;
      CHECK(plan.offsets[i] % 64 == 0);
      CHECK(plan.offsets[i] + requests[i].bytes <= plan.total_bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool together =
            requests[i].first_use <= requests[j].last_use && requests[j].first_use <= requests[i].last_use;
        const bool apart = plan.offsets[i] + requests[i].bytes <= plan.offsets[j] ||
                           plan.offsets[j] + requests[j].bytes <= plan.offsets[i];
        CHECK(!together || apart || requests[i].bytes == 0 || requests[j].bytes == 0);
      }
    }
    CHECK(plan.total_bytes < sum);
  }
}

void PoolRunsEachTaskOnce() {
  for (int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int tasks : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> seen(100);
      std::atomic<bool> worker_ok{true};
      pool.Run(tasks, [&](int task, int worker) {
        ++seen[task];
        if (worker < 0 || worker >= threads) worker_ok = false;
      });
      for (int i = 0; i < 100; ++i) CHECK(seen[i] == (i < tasks ? 1 : 0));
      CHECK(worker_ok);
    }
  }
}

void PoolServesSeveralThreads() {
  ThreadPool pool(3);
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) pool.Run(5, [&](int, int) { ++total; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 4 * 200 * 5);
}

#if !defined(__SANITIZE_THREAD__)
void PoolSurvivesFork() {
  ThreadPool pool(2);
  std::atomic<int> count{0};
  pool.Run(10, [&](int, int) { ++count; });
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> mine{0};
    pool.Run(10, [&](int, int) { ++mine; });
    _exit(mine == 10 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  pool.Run(10, [&](int, int) { ++count; });
  CHECK(count == 20);
}
#endif

void OptionsNameWhatIsWrong() {
  const auto parse = [](const char* key, const char* value, Options* options) {
    return ParseOptions(&key, &value, 1, options);
  };
  Options options;
  CHECK(parse("num_threads", "3", &options).empty() && options.num_threads == 3);
  CHECK(parse("isa", "scalar", &options).empty() && options.isa == "scalar");
  CHECK(parse("int16", "off", &options).empty() && !options.int16);
  CHECK(parse("speed", "1", &options).find("'speed'") != std::string::npos);
  CHECK(parse("isa", "mmx", &options).find("'mmx'") != std::string::npos);
  CHECK(parse("num_threads", "many", &options).find("'many'") != std::string::npos);
}

void BroadcastFoldsDimensions() {
  Broadcast plan;
  CHECK(plan.Plan({2, 3, 4, 5}, {1, 1, 1, 5}) && plan.out == (Shape{2, 3, 4, 5}) && plan.run_length() == 5);
  CHECK(plan.num_runs() == 24 && !plan.elementwise && !plan.b_repeats());
  CHECK(plan.Plan({4, 5}, {1, 4, 5}) && plan.elementwise);
  CHECK(plan.Plan({2, 3}, {2, 1}) && plan.b_repeats() && plan.num_runs() == 2);
  CHECK(!plan.Plan({2, 3}, {2, 4}));
  int64_t a = 0, b = 0;
  CHECK(plan.Plan({2, 1, 3}, {1, 4, 3}));
  plan.Offsets(5, &a, &b);  // second of the first input, row 1 of the second
  CHECK(a == 3 && b == 3);
}

int Main(bool with_fork) {
  EveryKernelOfEveryTierEqualsTheReference();
  VerificationCanFail();
  NothingIsClaimedWhereTheGraphLooksWrong();
  AnAbsentInputIsNotRead();
  NothingIsClaimedWithoutATier();
  ATierIsVerifiedOnce();
  RequantEqualsTheDefinition();
  NarrowRequantEqualsTheDefinition();
  GemmIsExactAtTheExtremes();
  ArenaNeverOverlapsTheLiving();
  PoolRunsEachTaskOnce();
  PoolServesSeveralThreads();
#if !defined(__SANITIZE_THREAD__)  // fork with live threads is outside what TSan models
  if (with_fork) PoolSurvivesFork();
#else
  (void)with_fork;
#endif
  OptionsNameWhatIsWrong();
  BroadcastFoldsDimensions();
  std::printf(failures == 0 ? "all passed\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace litesmith

// --no-fork: for qemu's user mode, which cannot start threads in a forked child.
int main(int argc, char** argv) { return litesmith::Main(!(argc > 1 && std::string(argv[1]) == "--no-fork")); }
