#include "common/rpc/bulk.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <array>
#include <string>

namespace strata::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
namespace io = google::protobuf::io;

uint32_t TagOf(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

}  // namespace

grpc::ByteBuffer EncodeBulk(const google::protobuf::MessageLite& rest, int field,
                            std::shared_ptr<const void> owner, std::span<const std::byte> data) {
  std::string head = rest.SerializeAsString();
  if (data.empty()) {
    const grpc::Slice slice(head);
    return {&slice, 1};
  }
  {
    io::StringOutputStream text(&head);  // appends
    io::CodedOutputStream out(&text);
    out.WriteTag(TagOf(field));
    out.WriteVarint32(static_cast<uint32_t>(data.size()));
  }
  using Owner = std::shared_ptr<const void>;
  const std::array slices = {
      grpc::Slice(head),
      grpc::Slice(
          const_cast<std::byte*>(data.data()), data.size(),
          [](void* kept) { delete static_cast<Owner*>(kept); }, new Owner(std::move(owner)))};
  return {slices.data(), slices.size()};
}

bool DecodeBulk(grpc::ByteBuffer& buffer, int field, google::protobuf::MessageLite* rest,
                std::vector<std::span<const std::byte>>* pieces) {
  pieces->clear();
  std::string others;
  grpc::ProtoBufferReader reader(&buffer);
  if (!reader.status().ok()) return false;
  {
    io::CodedInputStream in(&reader);
    io::StringOutputStream text(&others);
    io::CodedOutputStream out(&text);
    while (const uint32_t tag = in.ReadTag()) {
      if (tag != TagOf(field)) {
        if (!WireFormatLite::SkipField(&in, tag, &out)) return false;
        continue;
      }
      pieces->clear();  // of a field that is there twice the last one counts
      int left = 0;
      if (!in.ReadVarintSizeAsInt(&left)) return false;
      while (left > 0) {
        const void* data = nullptr;
        int size = 0;
        if (!in.GetDirectBufferPointer(&data, &size)) return false;
        const int taken = std::min(left, size);
        pieces->emplace_back(static_cast<const std::byte*>(data), static_cast<size_t>(taken));
        if (!in.Skip(taken)) return false;
        left -= taken;
      }
    }
    if (!in.ConsumedEntireMessage()) return false;
  }
  return rest->ParseFromString(others);
}

}  // namespace strata::rpc
