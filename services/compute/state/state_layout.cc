#include "services/compute/state/state_layout.h"

#include <xxhash.h>

#include "common/base/status.h"

#include "absl/strings/str_cat.h"

namespace strata::compute {

uint64_t KvShape::TokenBytes() const {
  return 2 * static_cast<uint64_t>(layers) * *RowBytes(type, static_cast<uint64_t>(width()));
}

absl::StatusOr<TensorType> KvTypeOf(std::string_view name, int head_dim) {
  for (const TensorType type :
       {TensorType::kF16, TensorType::kF32, TensorType::kBF16, TensorType::kQ8_0}) {
    const TensorTypeInfo& info = InfoOf(type);
    if (info.name != name) continue;
    if (head_dim % static_cast<int>(info.block_values) == 0) return type;
    return absl::InvalidArgumentError(
        absl::StrCat("compute.kv_type: ", A(name), " stores blocks of ", info.block_values,
                     " values, but a head of this model has ", head_dim, "; use f16"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("compute.kv_type: '", A(name), "' is none of f16, f32, bf16, q8_0"));
}

v1::StateLayout DescribeLayout(const KvShape& shape, int block_tokens) {
  v1::StateLayout layout;
  layout.set_block_tokens(static_cast<uint32_t>(block_tokens));
  for (const char* name : {"k", "v"}) {
    v1::StateComponent& component = *layout.add_components();
    component.set_kind(v1::StateComponent::ROWS);
    component.set_name(name);
    component.set_layers(static_cast<uint32_t>(shape.layers));
    component.set_stride(1);
    component.set_movable(shape.movable());  // values do not know their position
    component.set_row_bytes(
        static_cast<uint32_t>(*RowBytes(shape.type, static_cast<uint64_t>(shape.width()))));
    component.set_element(std::string(NameOf(shape.type)));
  }
  // Protobuf text is no canonical form; hash the numbers themselves.
  std::string canonical = "rows v1";
  for (const uint64_t n :
       {uint64_t(shape.layers), uint64_t(shape.kv_heads), uint64_t(shape.head_dim),
        uint64_t(shape.type), uint64_t(block_tokens)}) {
    canonical.append(reinterpret_cast<const char*>(&n), sizeof(n));
  }
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(canonical.data(), canonical.size()));
  layout.set_hash(digest.digest, sizeof(digest.digest));
  return layout;
}

}  // namespace strata::compute
