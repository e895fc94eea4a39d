// SPDX-License-Identifier: Apache-2.0
// See delegate.h.
#include "core/delegate.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "core/graph.h"
#include "core/partition.h"
#include "core/sparse_chains.h"

namespace litesmith {
namespace {

constexpr char kNodeName[] = "LitesmithDelegate";
constexpr double kMargin = 0.9;    // an operator taken for its speed must promise at least a tenth
constexpr double kPartitionUs = 5;  // to leave the stock engine's graph and to come back
constexpr double kTurnUs = 20;      // and where each has several threads
constexpr size_t kMostDecisions = 1 << 16;
constexpr size_t kMostEvents = 1 << 20;  // 40 MB; a caller who never takes them must not fill the memory

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "\"";
}

void* InitPartition(TfLiteContext* context, const char* buffer, size_t) {
  const auto* params = reinterpret_cast<const TfLiteDelegateParams*>(buffer);
  return new Partition(static_cast<Delegate*>(params->delegate->data_), context, *params);
}

void FreePartition(TfLiteContext*, void* buffer) { delete static_cast<Partition*>(buffer); }

TfLiteStatus PreparePartition(TfLiteContext* context, TfLiteNode* node) {
  return static_cast<Partition*>(node->user_data)->Prepare(context);
}

TfLiteStatus InvokePartition(TfLiteContext* context, TfLiteNode* node) {
  return static_cast<Partition*>(node->user_data)->Invoke(context);
}

const OpEntry* FindEntry(const std::vector<OpEntry>& entries, int code) {
  for (const OpEntry& entry : entries) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

// Whether a node has the two inputs, the output and the parameters that every hybrid operator and companion has.
bool IsComplete(const NodeView& node) {
  if (!node.has_input(0) || !node.has_input(1) || node.num_outputs() != 1) return false;
  if (!node.has_params() && node.code() != kPad) return false;
  return node.input(0).dims != nullptr && node.input(1).dims != nullptr && node.output(0).dims != nullptr;
}

// How an operator lies to those that are taken already: what the stock engine loses or saves by it.
enum class Place { kAlone, kBeside, kBetween };

bool PromisesToWin(const Op& op, Place place, std::string* why) {
  double here_us = 0, stock_us = 0;
  op.Estimate(&here_us, &stock_us);
  if (place == Place::kAlone) here_us += kPartitionUs;
  char text[96];
  std::snprintf(text, sizeof(text), "estimated at %.1f us against %.1f us of the stock engine", here_us, stock_us);
  *why = text;
  return here_us < (place == Place::kBetween ? stock_us + kPartitionUs : kMargin * stock_us);
}

}  // namespace

const char* OperatorName(int code) {
  if (const OpEntry* entry = FindEntry(Int16Ops(), code)) return entry->name;
  if (const OpEntry* entry = FindEntry(SparseOps(), code)) return entry->name;
  return code == kDensify ? "DENSIFY" : "OTHER";
}

Delegate::Delegate(Options options, const KernelTable* kernels, std::string no_kernels_reason)
    : options_(std::move(options)), kernels_(kernels), no_kernels_reason_(std::move(no_kernels_reason)) {
  std::memset(&abi_, 0, sizeof(abi_));
  abi_.data_ = this;
  abi_.Prepare = PrepareGraph;
  // Without this flag the interpreter refuses every graph with a dynamic tensor anywhere.
  abi_.flags = kTfLiteDelegateFlagsAllowDynamicTensors;
}

ThreadPool* Delegate::PoolFor(const TfLiteContext* context) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!pool_) {
    const int wanted = options_.num_threads > 0 ? options_.num_threads : context->recommended_num_threads;
    pool_ = std::make_unique<ThreadPool>(wanted);
  }
  return pool_.get();
}

std::unique_ptr<Op> Delegate::Make(Family family, const NodeView& node, std::string* why) const {
  const auto& entries = family == Family::kInt16    ? Int16Ops()
                        : family == Family::kSparse ? SparseOps()
                        : family == Family::kHybrid ? HybridOps()
                                                    : CompanionOps();
  const OpEntry* entry = FindEntry(entries, node.code());
  const bool is_float = node.num_outputs() > 0 && node.output(0).type == kTfLiteFloat32;
  if (entry == nullptr || (family != Family::kInt16 && !is_float)) return nullptr;
  if ((family == Family::kHybrid || family == Family::kCompanion) && !IsComplete(node)) return nullptr;
  return entry->make(node, *kernels_, why);
}

std::unique_ptr<Op> Delegate::MakeTaken(const NodeView& node, std::string* why) const {
  const auto found = taken_.find(node.index());
  *why = "it was not taken";
  return found == taken_.end() ? nullptr : Make(found->second, node, why);
}

std::vector<NodeView> Delegate::Nodes(TfLiteContext* context, const std::vector<int>& plan) const {
  std::vector<NodeView> nodes;
  for (int index : plan) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk) continue;
    nodes.emplace_back(context, index, node, registration, &origins_);
  }
  return nodes;
}

std::vector<int> Delegate::Decide(TfLiteContext* context) {
  std::vector<SparseCandidate> candidates;
  std::map<int, std::string> notes;
  const std::vector<int> plan = ExecutionPlan(context);
  const std::vector<NodeView> nodes = Nodes(context, plan);
  taken_.clear();
  unread_.clear();
  for (const NodeView& node : nodes) {
    std::string& note = notes[node.index()];
    note = "the operator is not implemented";
    if (options_.only_node >= 0 && options_.only_node != node.index()) {
      note = "only_node names another";
    } else if (node.code() == kDensify) {
      note = "unpacked once by the runtime";
    } else if (std::unique_ptr<Op> op = options_.int16 ? Make(Family::kInt16, node, &note) : nullptr) {
      note = op->kernel_name();
      taken_[node.index()] = Family::kInt16;
    } else if (std::unique_ptr<Op> op = options_.sparse ? Make(Family::kSparse, node, &note) : nullptr) {
      note = op->kernel_name();
      candidates.push_back({node, std::move(op)});
    }
  }
  for (const SparseVerdict& verdict : ChooseSparseChains(candidates)) {
    if (verdict.taken) taken_[verdict.node] = Family::kSparse;
    if (!verdict.note.empty()) notes[verdict.node] = verdict.note;
  }
  if (options_.hybrid != Options::Choice::kOff) TakeHybrid(context, nodes, &notes);
  if (options_.only_node < 0) {
    TakeCompanions(context, nodes, &notes);
    TakeUnread(nodes);
    if (options_.hybrid != Options::Choice::kOn && !TurnsPay(context, nodes)) {
      for (auto node = taken_.begin(); node != taken_.end();) {
        const bool stays = node->second == Family::kInt16 || node->second == Family::kSparse;
        if (!stays) notes[node->first] = "with several threads the turns of two engines cost more than this wins";
        node = stays ? std::next(node) : taken_.erase(node);
      }
      unread_.clear();
      TakeUnread(nodes);
    }
  }
  std::vector<Decision> decisions;
  std::vector<int> taken;
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    const bool is_taken = found != taken_.end();
    std::string note = notes[node.index()];
    if (is_taken && found->second == Family::kUnread) note = "done by its consumers";
    decisions.push_back({0, node.index(), OperatorName(node.code()), is_taken, note});
    if (is_taken) taken.push_back(node.index());
  }
  if (options_.verbose) {
    std::fprintf(stderr, "litesmith delegate: tier %s takes %zu of %zu nodes\n", kernels_->tier, taken.size(), plan.size());
    if (!no_kernels_reason_.empty()) std::fprintf(stderr, "  better tiers: %s\n", no_kernels_reason_.c_str());
    for (const Decision& d : decisions) {
      std::fprintf(stderr, "  node %d %s: %s%s\n", d.node, d.op.c_str(), d.taken ? "" : "left: ", d.note.c_str());
    }
  }
  Keep(std::move(decisions));
  return taken;
}

// The hybrid operator of a node whose model allows its precision, or null.
std::unique_ptr<Op> Delegate::MakeHybrid(const TfLiteContext* context, const NodeView& node, std::string* note) const {
  if (!IsComplete(node)) return nullptr;
  const TfLiteType weights = node.narrow(1).type;
  const bool relaxed = options_.relaxed == Options::Choice::kOn ||
                       (options_.relaxed == Options::Choice::kAuto && AllowsLessPrecision(context));
  if (weights == kTfLiteFloat32 && !relaxed) return nullptr;
  std::unique_ptr<Op> op = Make(Family::kHybrid, node, note);
  if (op == nullptr || weights != kTfLiteFloat16 || relaxed) return op;
  *note = "weights of 16-bit floats, and the model does not say that less precision will do";
  return nullptr;
}

// Of the operators that are left, those whose floats are multiplied in integers.
void Delegate::TakeHybrid(TfLiteContext* context, const std::vector<NodeView>& nodes, std::map<int, std::string>* notes) {
  for (const NodeView& node : nodes) {
    if (taken_.count(node.index()) || (options_.only_node >= 0 && options_.only_node != node.index())) continue;
    std::string& note = (*notes)[node.index()];
    const std::unique_ptr<Op> op = MakeHybrid(context, node, &note);
    if (op == nullptr || (options_.hybrid != Options::Choice::kOn && !PromisesToWin(*op, Place::kAlone, &note))) continue;
    note = op->kernel_name();
    taken_[node.index()] = Family::kHybrid;
  }
}

// Operators around hybrid ones, so that the chain stays in one engine: those that only come along, and hybrid ones that
// would not be worth it alone.
void Delegate::TakeCompanions(TfLiteContext* context, const std::vector<NodeView>& nodes,
                              std::map<int, std::string>* notes) {
  std::set<int> touched;  // tensors that hybrid operators and their companions read or write
  const auto sources = [](const NodeView& node) {
    std::vector<int> tensors{node.pad() != nullptr ? node.pad()->source : node.input_id(0)};
    if (node.code() == kAdd) tensors.push_back(node.input_id(1));
    return tensors;
  };
  const auto touch = [&](const NodeView& node) {
    for (int tensor : sources(node)) touched.insert(tensor);
    touched.insert(node.output_id(0));
  };
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    if (found != taken_.end() && found->second == Family::kHybrid) touch(node);
  }
  if (touched.empty()) return;
  const auto take = [&](const NodeView& node, Family family, const Op& op) {
    (*notes)[node.index()] = op.kernel_name();
    taken_[node.index()] = family;
    touch(node);
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const NodeView& node : nodes) {
      if (taken_.count(node.index()) || !IsComplete(node)) continue;
      const std::vector<int> in = sources(node);
      const bool fed = std::any_of(in.begin(), in.end(), [&](int tensor) { return touched.count(tensor) > 0; });
      const bool used = touched.count(node.output_id(0)) > 0;
      std::string why;
      if (!fed && !used) continue;
      if (const auto op = Make(Family::kCompanion, node, &why)) {
        changed = take(node, Family::kCompanion, *op);
      } else if (const auto hybrid = MakeHybrid(context, node, &why)) {
        const Place place = fed && used ? Place::kBetween : Place::kBeside;
        if (PromisesToWin(*hybrid, place, &why)) changed = take(node, Family::kHybrid, *hybrid);
      }
    }
  }
}

// Nodes whose work their consumers do.
void Delegate::TakeUnread(const std::vector<NodeView>& nodes) {
  std::vector<int> all, hybrid, padding;
  std::set<int> needed;  // tensors that hybrid operators and companions read when they run
  for (const NodeView& node : nodes) {
    const auto found = taken_.find(node.index());
    if (found == taken_.end()) continue;
    all.push_back(node.index());
    if (found->second != Family::kHybrid && found->second != Family::kCompanion) continue;
    hybrid.push_back(node.index());
    std::string why;
    const std::unique_ptr<Op> op = Make(found->second, node, &why);
    if (op->PadsItsInput()) padding.push_back(node.index());
    for (int i : op->RuntimeInputs()) needed.insert(node.input_id(i));
  }
  const auto keys = [](const auto& map) {
    std::set<int> tensors;
    for (const auto& entry : map) tensors.insert(entry.first);
    return tensors;
  };
  for (int node : UnreadNodes(nodes, keys(origins_.densified), all)) taken_[node] = Family::kUnread;
  std::set<int> widened = keys(origins_.widened);
  for (int tensor : needed) widened.erase(tensor);
  for (int node : UnreadNodes(nodes, widened, hybrid)) unread_.insert(node);
  for (int node : UnreadNodes(nodes, keys(origins_.padded), padding)) unread_.insert(node);
  for (int node : unread_) taken_[node] = Family::kUnread;
}

// Whether hybrid operators win more than is lost when two crews of threads take turns on the same cores: MobileNet V2 on
// two threads was measured to be 1.3 times slower where each depthwise convolution was left to the stock engine.
bool Delegate::TurnsPay(const TfLiteContext* context, const std::vector<NodeView>& nodes) const {
  const int threads = options_.num_threads > 0 ? options_.num_threads : context->recommended_num_threads;
  if (threads == 1) return true;
  double won_us = 0;
  int turns = 0;
  const NodeView* last = nullptr;
  for (const NodeView& node : nodes) {
    if (node.num_outputs() == 1 && origins_.widened.count(node.output_id(0)) > 0) continue;  // done before the first run
    const auto found = taken_.find(node.index());
    const bool here = found != taken_.end();
    if (here && found->second == Family::kUnread) continue;
    if (last != nullptr && here != (taken_.count(last->index()) > 0)) ++turns;
    last = &node;
    if (!here || found->second != Family::kHybrid) continue;
    double here_us = 0, stock_us = 0;
    std::string why;
    Make(Family::kHybrid, node, &why)->Estimate(&here_us, &stock_us);
    won_us += stock_us - here_us;
  }
  return won_us / threads > turns * kTurnUs;
}

void Delegate::Keep(std::vector<Decision> decisions) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (decisions_.size() > kMostDecisions) decisions_.clear();  // a delegate may serve any number of interpreters
  for (Decision& decision : decisions) decision.graph = graphs_;
  decisions_.insert(decisions_.end(), decisions.begin(), decisions.end());
  ++graphs_;
}

TfLiteStatus Delegate::Claim(TfLiteContext* context) {
  std::lock_guard<std::mutex> claiming(claim_mutex_);
  std::string refusal = kernels_ == nullptr ? no_kernels_reason_ : CheckAbi(context);
  if (!refusal.empty()) {
    if (options_.verbose) std::fprintf(stderr, "litesmith delegate: takes nothing: %s\n", refusal.c_str());
    Keep({{0, -1, "GRAPH", false, refusal}});
    return kTfLiteOk;
  }
  origins_ = FindOrigins(context);
  const std::vector<int> taken = Decide(context);
  if (taken.empty()) return kTfLiteOk;

  std::unique_ptr<TfLiteIntArray, void (*)(void*)> nodes(
      static_cast<TfLiteIntArray*>(std::malloc(sizeof(int) * (taken.size() + 1))), std::free);
  nodes->size = static_cast<int>(taken.size());
  for (size_t i = 0; i < taken.size(); ++i) nodes->data[i] = taken[i];
  TfLiteRegistration registration;
  std::memset(&registration, 0, sizeof(registration));
  registration.init = InitPartition;
  registration.free = FreePartition;
  registration.prepare = PreparePartition;
  registration.invoke = InvokePartition;
  registration.builtin_code = kTfLiteBuiltinDelegate;
  registration.custom_name = kNodeName;
  registration.version = 1;
  return context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, nodes.get(), &abi_);
}

TfLiteStatus Delegate::PrepareGraph(TfLiteContext* context, TfLiteDelegate* delegate) {
  return static_cast<Delegate*>(delegate->data_)->Claim(context);
}

void Delegate::SetProfiling(bool on) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (on) {
    events_.clear();
    events_.reserve(4096);  // growing while operators are timed would count as theirs
  }
  profiling_.store(on);
}

void Delegate::Record(const OpEvent& event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (events_.size() < kMostEvents) events_.push_back(event);
}

size_t Delegate::TakeEvents(OpEvent* out, size_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (out == nullptr) return events_.size();
  const size_t count = std::min(capacity, events_.size());
  std::copy_n(events_.begin(), count, out);
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

std::string Delegate::ProfileJson() {
  std::lock_guard<std::mutex> lock(mutex_);
  struct Total {
    const OpEvent* first;
    int64_t calls, ns;
  };
  std::vector<Total> totals;
  for (const OpEvent& event : events_) {
    const auto same = [&](const Total& t) { return t.first->node == event.node && t.first->kernel == event.kernel; };
    auto found = std::find_if(totals.begin(), totals.end(), same);
    if (found == totals.end()) found = totals.insert(totals.end(), {&event, 0, 0});
    ++found->calls;
    found->ns += event.duration_ns;
  }
  std::string out = "[";
  for (const Total& t : totals) {
    if (out.size() > 1) out += ",";
    out += "{\"node\":" + std::to_string(t.first->node) + ",\"op\":" + JsonString(t.first->op) + ",\"kernel\":" +
           JsonString(t.first->kernel) + ",\"calls\":" + std::to_string(t.calls) + ",\"total_ns\":" +
           std::to_string(t.ns) + "}";
  }
  return out + "]";
}

std::string Delegate::DecisionsJson() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::string out = "[";
  for (const Decision& d : decisions_) {
    if (out.size() > 1) out += ",";
    out += "{\"graph\":" + std::to_string(d.graph) + ",\"node\":" + std::to_string(d.node) + ",\"op\":" + JsonString(d.op) +
           ",\"taken\":" + (d.taken ? "true" : "false") + ",\"note\":" + JsonString(d.note) + "}";
  }
  return out + "]";
}

}  // namespace litesmith
