// SPDX-License-Identifier: Apache-2.0
// See sparse_chains.h.
#include "core/sparse_chains.h"

#include <cstdio>
#include <map>
#include <numeric>
#include <set>

#include "ops/planar_op.h"

namespace litesmith {
namespace {

constexpr double kMargin = 0.9;  // a chain must promise at least a tenth

int Find(std::vector<int>& parent, int i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

struct Chain {
  double here_us = 0, stock_us = 0;
  std::set<int> reads, writes;  // tensors
};

// Values of a tensor that must change layout when it crosses the border of a chain.
double ConversionUs(const TfLiteTensor& tensor) {
  if (tensor.type != kTfLiteFloat32 || IsConstant(tensor)) return 0.0;
  const Shape shape = ShapeOf(tensor);
  return PlanarOf(shape).pixels() == 1 ? 0.0 : NumElements(shape) * speed::kConversion * 1e-3;
}

std::string Text(double here_us, double stock_us) {
  char text[128];
  std::snprintf(text, sizeof(text), "its chain is estimated at %.0f us against %.0f us of the stock engine", here_us,
                stock_us);
  return text;
}

}  // namespace

std::vector<SparseVerdict> ChooseSparseChains(const std::vector<SparseCandidate>& candidates) {
  const int n = static_cast<int>(candidates.size());
  std::vector<int> parent(n);
  std::iota(parent.begin(), parent.end(), 0);
  std::map<int, int> producer;                 // tensor -> candidate
  std::map<int, const TfLiteTensor*> tensors;  // all that candidates touch
  for (int i = 0; i < n; ++i) {
    if (!candidates[i].op) continue;
    for (int o = 0; o < candidates[i].node.num_outputs(); ++o) {
      producer[candidates[i].node.output_id(o)] = i;
      tensors[candidates[i].node.output_id(o)] = &candidates[i].node.output(o);
    }
  }
  for (int i = 0; i < n; ++i) {
    if (!candidates[i].op) continue;
    for (int in : candidates[i].op->RuntimeInputs()) {
      const int id = candidates[i].node.input_id(in);
      tensors[id] = &candidates[i].node.input(in);
      const auto found = producer.find(id);
      if (found != producer.end()) parent[Find(parent, i)] = Find(parent, found->second);
    }
  }

  std::map<int, Chain> chains;
  for (int i = 0; i < n; ++i) {
    if (!candidates[i].op) continue;
    Chain& chain = chains[Find(parent, i)];
    double here = 0, stock = 0;
    candidates[i].op->Estimate(&here, &stock);
    chain.here_us += here;
    chain.stock_us += stock;
    for (int in : candidates[i].op->RuntimeInputs()) chain.reads.insert(candidates[i].node.input_id(in));
    for (int o = 0; o < candidates[i].node.num_outputs(); ++o) chain.writes.insert(candidates[i].node.output_id(o));
  }
  for (auto& [root, chain] : chains) {
    (void)root;
    for (int id : chain.reads) {
      if (chain.writes.count(id) == 0) chain.here_us += ConversionUs(*tensors[id]);
    }
    // A tensor nobody in the chain reads leaves it. (One read inside and outside is rare; its cost is left out.)
    for (int id : chain.writes) {
      if (chain.reads.count(id) == 0) chain.here_us += ConversionUs(*tensors[id]);
    }
  }

  std::vector<SparseVerdict> verdicts;
  for (int i = 0; i < n; ++i) {
    if (!candidates[i].op) continue;
    const Chain& chain = chains[Find(parent, i)];
    const bool taken = chain.here_us < kMargin * chain.stock_us;
    verdicts.push_back({candidates[i].node.index(), taken, taken ? "" : Text(chain.here_us, chain.stock_us)});
  }
  // DENSIFY nodes stay with the runtime: it unpacks a constant once and never again, and another consumer may need it.
  for (int i = 0; i < n; ++i) {
    if (!candidates[i].op) verdicts.push_back({candidates[i].node.index(), false, "unpacked once by the runtime"});
  }
  return verdicts;
}

}  // namespace litesmith
