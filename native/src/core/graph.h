// SPDX-License-Identifier: Apache-2.0
// Questions about the whole graph: may its structures be trusted, and which nodes need not run.
#ifndef LITESMITH_CORE_GRAPH_H_
#define LITESMITH_CORE_GRAPH_H_

#include <set>
#include <string>
#include <vector>

#include "core/node_view.h"

namespace litesmith {

// Reads the graph through the structures of abi/tflite_abi.h and checks that everything found makes sense: tensor
// types, ranks, sizes that agree with shapes, operator codes, indices. Empty, or what looked wrong; then the runtime
// has another layout than this library was built for and nothing may be claimed.
std::string CheckAbi(TfLiteContext* context);

// A copy: the runtime frees the array it hands out at the next question.
std::vector<int> ExecutionPlan(TfLiteContext* context);

// Whether the model's metadata say that it may be computed with the precision of 16-bit floats.
bool AllowsLessPrecision(const TfLiteContext* context);

Origins FindOrigins(TfLiteContext* context);

// The nodes that write one of `tensors`, of which all consumers are in `readers`, and the nodes that only those read: their
// values would only take memory.
std::vector<int> UnreadNodes(const std::vector<NodeView>& nodes, const std::set<int>& tensors,
                             const std::vector<int>& readers);

}  // namespace litesmith

#endif  // LITESMITH_CORE_GRAPH_H_
