// Messages put together and taken apart by hand, beside protobuf itself.
#include "common/rpc/bulk.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "strata/v1/kvstore.pb.h"

namespace strata::rpc {
namespace {

constexpr int kField = v1::SaveRequest::kDataFieldNumber;

// As a stream of the network may deliver it: in pieces.
grpc::ByteBuffer InPieces(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) slices.emplace_back(bytes.substr(at, piece));
  return {slices.data(), slices.size()};
}

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

std::string Flat(std::span<const std::span<const std::byte>> pieces) {
  std::string bytes;
  for (const auto& piece : pieces) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return bytes;
}

v1::SaveRequest Example(std::string data) {
  v1::SaveRequest message;
  for (uint32_t i = 0; i < 300; ++i) message.mutable_block()->mutable_tokens()->add_ids(i * i);
  message.mutable_block()->set_parent("sixteen bytes...");
  message.mutable_block()->set_bytes(data.size());
  message.set_data(std::move(data));
  return message;
}

TEST(Bulk, ProtobufReadsWhatWasEncoded) {
  for (const size_t size : {0, 1, 127, 128, 100'000, 3'000'000}) {
    const v1::SaveRequest expected = Example(std::string(size, 'x'));
    v1::SaveRequest rest = expected;
    rest.clear_data();
    bool kept = true;
    grpc::ByteBuffer buffer;
    {
      const std::shared_ptr<std::string> data(new std::string(size, 'x'), [&](std::string* s) {
        kept = false;
        delete s;
      });
      buffer = EncodeBulk(rest, kField, data, std::as_bytes(std::span(*data)));
    }
    EXPECT_EQ(kept, size > 0);
    v1::SaveRequest read;
    ASSERT_TRUE(read.ParseFromString(Flat(buffer)));
    EXPECT_EQ(read.SerializeAsString(), expected.SerializeAsString());
    buffer.Clear();
    EXPECT_FALSE(kept);
  }
}

TEST(Bulk, WhatProtobufWroteIsDecoded) {
  const v1::SaveRequest message = Example(std::string(50'000, 'x') + "end");
  v1::SaveRequest rest;
  std::vector<std::span<const std::byte>> pieces;
  for (const size_t piece : {1, 7, 4096, 1'000'000}) {
    grpc::ByteBuffer buffer = InPieces(message.SerializeAsString(), piece);
    ASSERT_TRUE(DecodeBulk(buffer, kField, &rest, &pieces)) << piece;
    EXPECT_EQ(Flat(pieces), message.data());
    EXPECT_EQ(rest.block().SerializeAsString(), message.block().SerializeAsString());
    EXPECT_TRUE(rest.data().empty());
  }
}

// Bytes from outside: what protobuf refuses is refused, what it takes means the same.
TEST(Bulk, AgreesWithProtobufOnDamagedMessages) {
  std::mt19937 random(1);
  const std::string whole = Example("some data").SerializeAsString();
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole;
    for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Most of the message is tokens: prefer its ends, where the frames are.
      const size_t at = random() % 2 == 0   ? random() % bytes.size()
                        : random() % 2 == 0 ? random() % std::min<size_t>(8, bytes.size())
                                            : bytes.size() - 1 - random() % bytes.size() / 16;
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.resize(at);
          break;
        default:
          bytes += bytes.substr(at);
      }
      if (bytes.empty()) break;
    }
    v1::SaveRequest expected;
    const bool valid = expected.ParseFromString(bytes);
    v1::SaveRequest rest;
    std::vector<std::span<const std::byte>> pieces;
    grpc::ByteBuffer buffer = InPieces(bytes, 1 + random() % 64);
    ASSERT_EQ(DecodeBulk(buffer, kField, &rest, &pieces), valid) << round;
    refused += valid ? 0 : 1;
    if (!valid) continue;
    EXPECT_EQ(Flat(pieces), expected.data()) << round;
    expected.clear_data();
    EXPECT_EQ(rest.SerializeAsString(), expected.SerializeAsString()) << round;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 19'000);
}

}  // namespace
}  // namespace strata::rpc
