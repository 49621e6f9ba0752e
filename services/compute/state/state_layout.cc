#include "services/compute/state/state_layout.h"

#include <xxhash.h>

namespace strata::compute {

uint64_t KvShape::TokenBytes() const {
  return 2 * static_cast<uint64_t>(layers) * *RowBytes(type, static_cast<uint64_t>(width()));
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
    // Quantised keys would be rounded again at every turn; values do not know their position.
    component.set_movable(shape.keys_turn &&
                          (shape.type == TensorType::kF16 || shape.type == TensorType::kF32));
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
