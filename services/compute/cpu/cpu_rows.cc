#include <cassert>
#include <cstring>

#include "common/quant/decode.h"
#include "common/quant/weight_layout.h"
#include "services/compute/cpu/cpu_backend_impl.h"

namespace strata::compute {

void CpuBackend::EmbedRows(const Tensor& table, std::span<const int32_t> ids, const Tensor& out) {
  assert(out.rows == static_cast<int64_t>(ids.size()) && out.cols == table.cols);
  scratch_.Reset();
  const bool interleaved = table.layout == quant::WeightLayout::kRows8;
  const PerWorker apart = TakePerWorker(interleaved ? table.row_bytes : 0);
  ForRows(out.rows, out.cols * 4, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t t = begin; t < end; ++t) {
      assert(ids[t] >= 0 && ids[t] < table.rows);
      const std::byte* row = table.data + ids[t] * table.row_bytes;
      if (interleaved) {
        quant::ExtractRow(table.type, ids[t], table.row_bytes, table.data, apart(worker));
        row = apart(worker);
      }
      quant::DecodeRow(table.type, row, FloatRow(out, t), table.cols);
    }
  });
}

void CpuBackend::GatherRows(const Tensor& x, std::span<const int32_t> rows, const Tensor& out) {
  assert(out.rows == static_cast<int64_t>(rows.size()) && out.cols == x.cols);
  ForRows(out.rows, out.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      assert(rows[t] >= 0 && rows[t] < x.rows);
      std::memcpy(FloatRow(out, t), FloatRow(x, rows[t]), x.cols * sizeof(float));
    }
  });
}

void CpuBackend::Add(const Tensor& x, const Tensor& y) {
  assert(x.rows == y.rows && x.cols == y.cols);
  ForRows(y.rows, y.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) kernels_.add(FloatRow(x, t), FloatRow(y, t), y.cols);
  });
}

void CpuBackend::RmsNorm(const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  assert(x.rows == out.rows && x.cols == out.cols && weight.cols == x.cols);
  const float* factors = FloatRow(weight, 0);
  ForRows(x.rows, x.cols * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels_.rms_norm(FloatRow(x, t), factors, eps, x.cols, FloatRow(out, t));
    }
  });
}

void CpuBackend::SwiGlu(const Tensor& gate, const Tensor& up, const Tensor& out) {
  assert(gate.rows == up.rows && gate.cols == up.cols && gate.rows == out.rows);
  ForRows(gate.rows, gate.cols * 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels_.swiglu(FloatRow(gate, t), FloatRow(up, t), gate.cols, FloatRow(out, t));
    }
  });
}

}  // namespace strata::compute
