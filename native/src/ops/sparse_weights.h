// SPDX-License-Identifier: Apache-2.0
// Pruned float weights: read from a dense constant with zeros or a TFLite sparse tensor, and compressed by rows.
#ifndef LITESMITH_OPS_SPARSE_WEIGHTS_H_
#define LITESMITH_OPS_SPARSE_WEIGHTS_H_

#include <string>
#include <vector>

#include "core/node_view.h"
#include "kernels/kernels.h"

namespace litesmith {

// The dense float values of a constant, decoded from any traversal order and block map. False with the reason.
bool ReadFloatConstant(const TfLiteTensor& tensor, std::vector<float>* values, std::string* why);  // 16 bits widened
bool ReadHalfConstant(const TfLiteTensor& tensor, std::vector<uint16_t>* values, std::string* why);

class SparseRows {
 public:
  // ragged: the last block may have fewer than four rows. Only what writes single values can do that: kernels write all
  // four.
  explicit SparseRows(bool ragged = false) : ragged_(ragged) {}

  // values[rows][columns]. Only looks at the zeros: whether there are blocks, and how many weights would be stored.
  void Measure(const std::vector<float>& values, int rows, int columns);
  // Groups of four rows that mostly share their columns are stored as 4x1 blocks. Others in parts of at most `part`
  // columns, which are to be multiplied one after the other.
  void Compress(const std::vector<float>& values, int rows, int columns, int part, const std::vector<float>& bias,
                float lo, float hi);
  bool blocks() const { return blocks_; }
  int64_t nonzeros() const { return nonzeros_; }
  int64_t stored() const { return stored_; }
  int parts() const { return parts_; }
  int first_column(int part) const { return part * part_columns_; }  // also of the part behind the last: at least all
  SparseView View(int part) const;  // its columns count from the first of the part

 private:
  const bool ragged_;
  bool blocks_ = false;
  int64_t nonzeros_ = 0, stored_ = 0;
  int rows_ = 0;  // of the view: rows or groups
  int parts_ = 1, part_columns_ = 0;
  std::vector<int32_t> start_, column_;
  std::vector<float> value_, bias_;
  float lo_ = 0, hi_ = 0;
};

// The clamp of a fused activation on floats.
bool FloatActivation(Activation activation, float* lo, float* hi);

}  // namespace litesmith

#endif  // LITESMITH_OPS_SPARSE_WEIGHTS_H_
