// Runs the reader over the whole corpus in every build (also under the address sanitizer), without
// libFuzzer: each file gives an error or a consistent model, in bounded memory.
#include "tests/fuzz/gguf_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>
#include <string>

#include "common/gguf/reader.h"
#include "tests/fuzz/gguf_check.h"

// Not under sanitizers, which bring their own; the analyzer would see leaks in every operator new.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang_analyzer__)
#define STRATA_COUNT_ALLOCATIONS 1
namespace {
std::atomic<size_t> allocated_bytes{0};  // ever, not only live
}
void* operator new(size_t size) {
  allocated_bytes += size;
  if (void* p = malloc(size); p != nullptr) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
#endif

namespace strata::gguf {
namespace {

using ::testing::HasSubstr;

// A tensor info takes 24 bytes or more in the file and about 100 in memory, in three tables at
// most; messages and the list of known types take a few KiB.
constexpr size_t kMemoryFactor = 32;
constexpr size_t kMemoryBase = 64 * 1024;

void OpenAndCheck(const CorpusFile& file) {
  SCOPED_TRACE(file.name);
  const MemoryFile memory(file.bytes);
#ifdef STRATA_COUNT_ALLOCATIONS
  const size_t before = allocated_bytes;
#endif
  const auto model = Model::Open(memory.path());
#ifdef STRATA_COUNT_ALLOCATIONS
  EXPECT_LE(allocated_bytes - before, kMemoryFactor * file.bytes.size() + kMemoryBase);
#endif
  if (model.ok()) {
    EXPECT_EQ(FindInconsistency(**model), "");
  }
}

std::string ErrorOf(const std::string& bytes) {
  const MemoryFile memory(bytes);
  const auto model = Model::Open(memory.path());
  return model.ok() ? "no error" : std::string(model.status().message());
}

TEST(GgufCorpusTest, TheWholeFileIsValid) {
  const FieldMap valid;
  const MemoryFile memory(valid.bytes());
  const auto model = Model::Open(memory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->metadata().size(), 20);
  EXPECT_EQ((*model)->tensors().size(), 6);
  EXPECT_EQ(FindInconsistency(**model), "");
}

TEST(GgufCorpusTest, SurvivesEveryBrokenField) {
  const std::vector<CorpusFile> files = FieldMap().BreakEveryField();
  EXPECT_GT(files.size(), 1000);
  for (const CorpusFile& file : files) OpenAndCheck(file);
}

TEST(GgufCorpusTest, RefusesEveryTruncation) {
  const FieldMap valid;
  // The last tensor ends where the file does, so every cut hits something.
  for (const CorpusFile& file : valid.CutEverywhere()) {
    OpenAndCheck(file);
    EXPECT_NE(ErrorOf(file.bytes), "no error") << file.name;
  }
}

TEST(GgufCorpusTest, SurvivesRandomDamage) {
  const FieldMap valid;
  std::mt19937_64 random(20261129);
  const size_t header = valid.bytes().find("output_norm.weight") + 50;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = valid.bytes();
    std::string name = "random damage at";
    for (uint64_t n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % header;
      bytes[at] = static_cast<char>(random());
      name += " " + std::to_string(at);
    }
    OpenAndCheck({name, bytes});
  }
}

// Attacks and accidents known from other readers, each with the message it must get.
TEST(GgufCorpusTest, NamesKnownDamage) {
  const FieldMap valid;
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  const struct {
    std::string bytes;
    const char* message;
  } cases[] = {
      {valid.With("n_keys", kHuge), "more than the limit"},
      {valid.With("n_keys", 65536), "cannot fit"},
      {valid.With("n_tensors", kHuge), "more than the limit"},
      {valid.With("n_tensors", 1000000), "cannot fit"},
      {valid.With("n_tensors", 5), "no error"},  // one tensor less is a consistent file
      {valid.With("general.architecture/key_length", kHuge), "more than the limit"},
      {valid.With("general.architecture/value", kHuge), "more than the limit"},
      {valid.With("general.architecture/value", 1 << 20), "ends too early"},
      {valid.With("b.i32s/count", kHuge), "impossible"},
      {valid.With("b.i32s/count", kHuge / 4), "ends too early"},
      {valid.With("b.i32s/count", 1 << 20), "ends too early"},
      {valid.With("b.texts/count", kHuge), "cannot fit"},
      {valid.With("b.texts/value", 9), "array of arrays"},
      {valid.With("b.texts/value", 13), "unknown value type 13"},
      {valid.With("a.u8/type", 99), "unknown value type 99"},
      {valid.With("a.bool/value", 2), "not 0 or 1"},
      {valid.With("b.bools/1", 255), "not 0 or 1"},
      {valid.With("general.alignment/value", 0), "not a power of two"},
      {valid.With("general.alignment/value", 24), "not a power of two"},
      {valid.With("general.alignment/value", 1 << 30), "not a power of two"},
      {valid.With("general.alignment/type", 6), "expected a non-negative integer"},
      {valid.WithText("a.u8/key", "a.i8"), "'a.i8' occurs twice"},
      {valid.WithText("blk.0.ffn_up_exps.weight/name", "blk.0.ffn_up_exps.weighu"), "no error"},
      {valid.With("token_embd.weight/n_dims", 5), "limit of 4"},
      {valid.With("token_embd.weight/n_dims", 0xffffffff), "limit of 4"},
      {valid.With("token_embd.weight/dim0", kHuge), "63 bits"},
      {valid.With("token_embd.weight/dim1", uint64_t{1} << 59), "63 bits"},
      {valid.With("token_embd.weight/dim1", 0), "dimension 1 is 0"},
      {valid.With("token_embd.weight/type", 4), "unknown tensor type 4"},
      {valid.With("token_embd.weight/type", 12), "blocks of 256"},
      {valid.With("token_embd.weight/offset", 4), "not a multiple of the alignment"},
      {valid.With("token_embd.weight/offset", ~uint64_t{31}), "impossible offset"},
      {valid.With("token_embd.weight/offset", 1 << 20), "truncated"},
      {valid.With("token_embd.weight/offset", 32), "overlap"},
      {valid.With("token_embd.weight/dim1", 6), "overlap"},
  };
  for (const auto& test : cases) EXPECT_THAT(ErrorOf(test.bytes), HasSubstr(test.message));
}

// 43 bytes that made another reader loop for hours: one key whose array claims 2^63 elements.
TEST(GgufCorpusTest, RefusesASmallFileWithAHugeArray) {
  std::string bytes = FieldMap().bytes().substr(0, 8) + std::string(8, '\0');
  const auto put = [&](uint64_t value, size_t width) {
    bytes.append(reinterpret_cast<const char*>(&value), width);
  };
  put(1, 8);  // keys
  put(3, 8);  // key length
  bytes += "abc";
  put(9, 4);  // array
  put(0, 4);  // of u8
  put(uint64_t{1} << 63, 8);
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("ends too early"));
}

}  // namespace
}  // namespace strata::gguf
