// Messages whose bulk is one `bytes` field, sent and received without passing that field through
// protobuf, which would copy it twice on either side. On the wire they are ordinary messages:
// either end may be an ordinary stub. Includes gRPC headers.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/sync_stream.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace strata::rpc {

// The message `rest` with field `field` = data; without the field if there is no data. The owner of
// the data is kept until gRPC has sent it.
grpc::ByteBuffer EncodeBulk(const google::protobuf::MessageLite& rest, int field,
                            std::shared_ptr<const void> owner, std::span<const std::byte> data);

// The other way: `rest` is what the message holds beside the field, `pieces` the field's bytes,
// which lie in `buffer`. False if this is no such message.
bool DecodeBulk(grpc::ByteBuffer& buffer, int field, google::protobuf::MessageLite* rest,
                std::vector<std::span<const std::byte>>* pieces);

}  // namespace strata::rpc
