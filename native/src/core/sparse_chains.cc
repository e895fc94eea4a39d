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
  std::set<int> reads_planes;   // of those it reads
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

// Which candidates are worth more to the stock engine than to the end of a chain: a dense FULLY_CONNECTED behind a pruned
// network would cost more than it saves, though the whole still wins. Inner ones stay, for the sake of the layout.
std::vector<bool> LosingEnds(const std::vector<SparseCandidate>& candidates) {
  const int n = static_cast<int>(candidates.size());
  std::vector<bool> dropped(n, false);
  for (bool changed = true; changed;) {
    changed = false;
    std::set<int> written, read;  // tensors, by those that are left
    for (int i = 0; i < n; ++i) {
      if (dropped[i]) continue;
      for (int o = 0; o < candidates[i].node.num_outputs(); ++o) written.insert(candidates[i].node.output_id(o));
      for (int in : candidates[i].op->RuntimeInputs()) read.insert(candidates[i].node.input_id(in));
    }
    for (int i = 0; i < n && !changed; ++i) {
      if (dropped[i]) continue;
      const NodeView& node = candidates[i].node;
      bool fed = false, used = false;
      double in_us = 0, out_us = 0;
      for (int in : candidates[i].op->RuntimeInputs()) {
        fed = fed || written.count(node.input_id(in)) > 0;
        if (candidates[i].op->input_layout() == Layout::kPlanar) in_us += ConversionUs(node.input(in));
      }
      for (int o = 0; o < node.num_outputs(); ++o) {
        used = used || read.count(node.output_id(o)) > 0;
        out_us += ConversionUs(node.output(o));
      }
      if (fed == used) continue;  // inside, or alone
      double here = 0, stock = 0;
      candidates[i].op->Estimate(&here, &stock);
      const double saved = here - stock + (used ? in_us - out_us : out_us - in_us);
      if (saved > 0) dropped[i] = changed = true;
    }
  }
  return dropped;
}

}  // namespace

std::vector<SparseVerdict> ChooseSparseChains(const std::vector<SparseCandidate>& candidates) {
  const int n = static_cast<int>(candidates.size());
  const std::vector<bool> dropped = LosingEnds(candidates);
  std::vector<int> parent(n);
  std::iota(parent.begin(), parent.end(), 0);
  std::map<int, int> producer;                 // tensor -> candidate
  std::map<int, const TfLiteTensor*> tensors;  // all that candidates touch
  for (int i = 0; i < n; ++i) {
    if (dropped[i]) continue;
    for (int o = 0; o < candidates[i].node.num_outputs(); ++o) {
      producer[candidates[i].node.output_id(o)] = i;
      tensors[candidates[i].node.output_id(o)] = &candidates[i].node.output(o);
    }
  }
  for (int i = 0; i < n; ++i) {
    if (dropped[i]) continue;
    for (int in : candidates[i].op->RuntimeInputs()) {
      const int id = candidates[i].node.input_id(in);
      tensors[id] = &candidates[i].node.input(in);
      const auto found = producer.find(id);
      if (found != producer.end()) parent[Find(parent, i)] = Find(parent, found->second);
    }
  }

  std::map<int, Chain> chains;
  for (int i = 0; i < n; ++i) {
    if (dropped[i]) continue;
    Chain& chain = chains[Find(parent, i)];
    double here = 0, stock = 0;
    candidates[i].op->Estimate(&here, &stock);
    chain.here_us += here;
    chain.stock_us += stock;
    for (int in : candidates[i].op->RuntimeInputs()) {
      chain.reads.insert(candidates[i].node.input_id(in));
      if (candidates[i].op->input_layout() == Layout::kPlanar) chain.reads_planes.insert(candidates[i].node.input_id(in));
    }
    for (int o = 0; o < candidates[i].node.num_outputs(); ++o) chain.writes.insert(candidates[i].node.output_id(o));
  }
  for (auto& [root, chain] : chains) {
    (void)root;
    for (int id : chain.reads_planes) {
      if (chain.writes.count(id) == 0) chain.here_us += ConversionUs(*tensors[id]);
    }
    // A tensor nobody in the chain reads leaves it. (One read inside and outside is rare; its cost is left out.)
    for (int id : chain.writes) {
      if (chain.reads.count(id) == 0) chain.here_us += ConversionUs(*tensors[id]);
    }
  }

  std::vector<SparseVerdict> verdicts;
  for (int i = 0; i < n; ++i) {
    if (dropped[i]) {
      verdicts.push_back({candidates[i].node.index(), false, "slower here, and at the end of its chain"});
      continue;
    }
    const Chain& chain = chains[Find(parent, i)];
    const bool taken = chain.here_us < kMargin * chain.stock_us;
    verdicts.push_back({candidates[i].node.index(), taken, taken ? "" : Text(chain.here_us, chain.stock_us)});
  }
  return verdicts;
}

}  // namespace litesmith
