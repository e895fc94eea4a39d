// SPDX-License-Identifier: Apache-2.0
// The delegate: decides which nodes to take, owns the threads and the record of what was taken and how long it took.
#ifndef LITESMITH_CORE_DELEGATE_H_
#define LITESMITH_CORE_DELEGATE_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "abi/tflite_abi.h"
#include "core/op.h"
#include "core/options.h"

namespace litesmith {

// What became of a node when a graph was offered.
struct Decision {
  int graph;  // a model's subgraphs are offered one after the other
  int node;
  std::string op;
  bool taken;
  std::string note;  // kernel when taken, the reason when not
};

// One run of one operator; the layout is part of the C interface. Names live as long as the library.
struct OpEvent {
  int64_t start_ns;  // CLOCK_MONOTONIC
  int64_t duration_ns;
  const char* op;
  const char* kernel;
  int64_t node;  // -1: a layout conversion
};

// Why a node is taken, and so which operator runs it.
enum class Family { kInt16, kSparse, kHybrid, kCompanion, kUnread };

class Delegate {
 public:
  // `kernels` may be null: then nothing is claimed. `no_kernels_reason` says why it, or a better tier, is missing.
  Delegate(Options options, const KernelTable* kernels, std::string no_kernels_reason);

  TfLiteDelegate* abi() { return &abi_; }
  const Options& options() const { return options_; }
  bool has_kernels() const { return kernels_ != nullptr; }
  const KernelTable& kernels() const { return *kernels_; }
  ThreadPool* PoolFor(const TfLiteContext* context);

  // Of the graph being claimed; valid while partitions are built. The operator of a node that was taken, or null with the
  // reason; whether a taken node need not run; and what tensors come from.
  std::unique_ptr<Op> MakeTaken(const NodeView& node, std::string* why = nullptr) const;
  bool is_unread(int node) const { return unread_.count(node) > 0; }
  const Origins& origins() const { return origins_; }

  bool profiling() const { return profiling_.load(std::memory_order_relaxed); }
  void SetProfiling(bool on);
  void Record(const OpEvent& event);
  std::string ProfileJson();
  // Hands over the oldest events and forgets them; without `out` only counts them.
  size_t TakeEvents(OpEvent* out, size_t capacity);
  std::string DecisionsJson();

 private:
  static TfLiteStatus PrepareGraph(TfLiteContext* context, TfLiteDelegate* delegate);
  TfLiteStatus Claim(TfLiteContext* context);
  std::vector<int> Decide(TfLiteContext* context);
  std::unique_ptr<Op> Make(Family family, const NodeView& node, std::string* why) const;
  std::vector<NodeView> Nodes(TfLiteContext* context, const std::vector<int>& plan) const;
  void TakeHybrid(TfLiteContext* context, const std::vector<NodeView>& nodes, std::map<int, std::string>* notes);
  void TakeCompanions(TfLiteContext* context, const std::vector<NodeView>& nodes, std::map<int, std::string>* notes);
  std::unique_ptr<Op> MakeHybrid(const TfLiteContext* context, const NodeView& node, std::string* note) const;
  void TakeUnread(const std::vector<NodeView>& nodes);
  struct HybridRun {
    std::vector<int> nodes;
    double won_us = 0;
  };
  std::vector<HybridRun> HybridRuns(const std::vector<NodeView>& nodes) const;
  void DropWhatDoesNotPay(const TfLiteContext* context, const std::vector<NodeView>& nodes,
                          std::map<int, std::string>* notes);
  void Keep(std::vector<Decision> decisions);

  Options options_;
  const KernelTable* kernels_;
  std::string no_kernels_reason_;
  TfLiteDelegate abi_;
  std::mutex claim_mutex_;  // one graph is claimed at a time
  Origins origins_;         // of that graph, as all up to the next mutex
  std::map<int, Family> taken_;
  std::set<int> unread_;
  std::mutex mutex_;        // guards everything below
  std::unique_ptr<ThreadPool> pool_;
  std::vector<Decision> decisions_;
  int graphs_ = 0;  // offered so far
  std::vector<OpEvent> events_;
  std::atomic<bool> profiling_{false};
};

}  // namespace litesmith

#endif  // LITESMITH_CORE_DELEGATE_H_
