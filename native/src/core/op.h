// SPDX-License-Identifier: Apache-2.0
// An operator the delegate can run, and the table of the makers of all of them.
#ifndef LITESMITH_CORE_OP_H_
#define LITESMITH_CORE_OP_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/node_view.h"
#include "core/thread_pool.h"
#include "kernels/registry.h"

namespace litesmith {

// How the float tensors of an operator lie in memory inside a partition. kPlanar: [batch][channel][plane], a plane
// being height * width floats rounded up (see ops/planar.h).
enum class Layout { kNhwc, kPlanar };

class HybridGemm;

struct RunArgs {
  const void* const* inputs;  // null for an absent optional input
  void* const* outputs;
  const Shape* const* input_shapes;
  const Shape* const* output_shapes;
  uint8_t* scratch;
  ThreadPool* pool;
  // While profiling, and for an operator that is made of several: where their times are added up.
  std::atomic<int64_t>* part_ns = nullptr;
};

// Life of an operator: Make (checks everything, reads no weights), Pack (reads the constants), InferShapes whenever
// the shapes may have changed, Run.
class Op {
 public:
  virtual ~Op() = default;
  virtual const char* kernel_name() const = 0;
  virtual void Pack() {}
  // Shapes of all inputs (empty for absent ones) to shapes of the outputs. False when they do not fit.
  virtual bool InferShapes(const std::vector<Shape>& inputs, std::vector<Shape>* outputs) = 0;
  // Bytes of scratch memory for the shapes last seen.
  virtual size_t ScratchBytes(int num_threads) const {
    (void)num_threads;
    return 0;
  }
  virtual void Run(const RunArgs& args) = 0;
  // True when a vector load may reach up to 64 bytes past the end of input 0.
  virtual bool ReadsPastInput() const { return false; }
  virtual Layout layout() const { return Layout::kNhwc; }
  virtual Layout input_layout() const { return layout(); }
  // Where the operator is a 1x1 convolution of neighbouring pixels: its product, which may run on some of them.
  virtual const HybridGemm* Pointwise() const { return nullptr; }
  // True when input 0 is read from before the PAD node that makes it (NodeView::pad).
  virtual bool PadsItsInput() const { return false; }
  // Indices of inputs whose data the operator needs at run time (weights were packed).
  virtual std::vector<int> RuntimeInputs() const { return {0}; }
  // What the operator costs here and in the stock engine, in microseconds of one core; 0 and 0: always worth taking.
  virtual void Estimate(double* here_us, double* stock_us) const { *here_us = *stock_us = 0.0; }
};

// Returns null with the reason in `why` when the node is not one this maker can run exactly.
using OpMaker = std::unique_ptr<Op>(const NodeView& node, const KernelTable& kernels, std::string* why);

struct OpEntry {
  int code;
  const char* name;
  OpMaker* make;
  int inputs;                 // that must be there for `make` to look at
  bool needs_params = false;  // and whether the builtin parameters must
};

// Int16 operators, by builtin code.
const std::vector<OpEntry>& Int16Ops();
// Float operators of sparse chains, by builtin code.
const std::vector<OpEntry>& SparseOps();
// Float operators whose products are of integers, by builtin code.
const std::vector<OpEntry>& HybridOps();
// Float operators that are taken for the sake of hybrid ones around them.
const std::vector<OpEntry>& CompanionOps();

const char* OperatorName(int code);

}  // namespace litesmith

#endif  // LITESMITH_CORE_OP_H_
