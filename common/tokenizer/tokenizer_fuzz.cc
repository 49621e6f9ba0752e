// Any metadata gives a tokenizer or an error, and any text gives tokens that keep the promises of
// tokenizer.h. The input is read as: a vocabulary (complete in its bytes, so that the fuzzer gets
// past that check, then extended and bent), and a text.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "common/gguf/metadata.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/testing/test_vocabulary.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/utf8.h"

namespace strata::tokenizer {
namespace {

void Check(bool promise) {
  if (!promise) std::abort();
}

// Metadata whose payloads live here.
class Entries {
 public:
  void AddStrings(std::string_view key, const std::vector<std::string_view>& strings) {
    std::string& payload = payloads_.emplace_back();
    for (const std::string_view s : strings) Append(s, &payload);
    Add(key, gguf::ValueType::kString, true, strings.size());
  }
  void AddString(std::string_view key, std::string_view s) {
    Append(s, &payloads_.emplace_back());
    Add(key, gguf::ValueType::kString, false, 1);
  }
  template <class T>
  void AddNumbers(std::string_view key, gguf::ValueType type, const std::vector<T>& numbers,
                  bool is_array = true) {
    std::string& payload = payloads_.emplace_back();
    payload.resize(numbers.size() * sizeof(T) + 1);  // never an empty buffer
    std::memcpy(payload.data(), numbers.data(), numbers.size() * sizeof(T));
    payload.pop_back();
    Add(key, type, is_array, numbers.size());
  }
  absl::StatusOr<gguf::Metadata> Make() { return gguf::Metadata::Make(entries_); }

 private:
  static void Append(std::string_view s, std::string* payload) {
    const uint64_t size = s.size();
    payload->append(reinterpret_cast<const char*>(&size), sizeof(size));
    payload->append(s);
  }
  void Add(std::string_view key, gguf::ValueType type, bool is_array, size_t count) {
    entries_.push_back(
        {key, gguf::Value(type, is_array, count, std::as_bytes(std::span(payloads_.back())))});
  }
  std::deque<std::string> payloads_;
  std::vector<gguf::Metadata::Entry> entries_;
};

constexpr std::string_view kIds[] = {
    "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.prefix_token_id"};

void AddVocabulary(FuzzedDataProvider& data, Entries& entries) {
  const bool byte_pair = data.ConsumeBool();
  const auto known = KnownPreTokenizers();
  const PreTokenizer& pre = known[data.ConsumeIntegralInRange<size_t>(0, known.size() - 1)];
  TestVocabulary v = byte_pair ? ByteLevelVocabulary(pre.name) : SentencePieceVocabulary();
  for (int n = data.ConsumeIntegralInRange(0, 40); n > 0; --n) {
    const std::string text = data.ConsumeRandomLengthString(12);
    const auto type = static_cast<TokenType>(data.ConsumeIntegralInRange(-1, 8));
    const bool spell = byte_pair && data.ConsumeBool();
    v.Add(spell ? BytesToAlphabet(text) : text, type, data.ConsumeFloatingPoint<float>());
  }
  for (int n = data.ConsumeIntegralInRange(0, 40); n > 0; --n) {
    v.MergeOnly(data.ConsumeRandomLengthString(6), data.ConsumeRandomLengthString(6));
  }
  entries.AddString("tokenizer.ggml.model", byte_pair ? "gpt2" : "llama");
  entries.AddString("tokenizer.ggml.pre", pre.name);
  entries.AddStrings("tokenizer.ggml.tokens", v.vocabulary.tokens);
  entries.AddStrings("tokenizer.ggml.merges", v.vocabulary.merges);
  entries.AddNumbers("tokenizer.ggml.scores", gguf::ValueType::kF32, v.vocabulary.scores);
  if (data.ConsumeBool()) {
    entries.AddNumbers("tokenizer.ggml.token_type", gguf::ValueType::kI32, v.vocabulary.types);
  }
  for (const std::string_view key : kIds) {
    if (!data.ConsumeBool()) continue;
    const std::vector<uint32_t> id = {data.ConsumeIntegralInRange<uint32_t>(0, 400)};
    entries.AddNumbers(key, data.ConsumeBool() ? gguf::ValueType::kU32 : gguf::ValueType::kF32, id,
                       false);
  }
  const std::vector<uint8_t> flag = {data.ConsumeBool()};
  entries.AddNumbers("tokenizer.ggml.add_bos_token", gguf::ValueType::kBool, flag, false);
  entries.AddNumbers("tokenizer.ggml.add_space_prefix", gguf::ValueType::kBool, flag, false);
}

void CheckPromises(const Tokenizer& t, const std::string& text, size_t cut) {
  const std::vector<uint32_t> plain = t.Encode(text, false);
  for (const uint32_t id : plain) Check(id < t.vocab_size() && !t.IsControl(id));
  const std::string_view view(text);
  const std::vector<Segment> user = {{view.substr(0, cut), false}, {view.substr(cut), false}};
  Check(t.Encode(user) == plain);
  const std::vector<uint32_t> special = t.EncodeWithBos(text, true);
  const std::vector<Segment> maker = {{view.substr(0, cut), true}, {view.substr(cut), true}};
  Check(t.EncodeWithBos(maker) == special);
  for (const std::vector<uint32_t>& ids : {plain, special}) {
    std::string bytes;
    StreamDecoder decoder(t, true);
    std::string streamed;
    for (const uint32_t id : ids) {
      bytes += t.Piece(id);
      streamed += decoder.Push(id);
    }
    Check(streamed + decoder.Finish() == LossyUtf8(bytes));
    Check(t.Decode(ids, true).size() <= bytes.size());
  }
  t.FindToken(text);
}

void RunOne(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  Entries entries;
  AddVocabulary(data, entries);
  const auto metadata = entries.Make();
  Check(metadata.ok());
  const auto tokenizer = Tokenizer::FromGguf(*metadata);
  if (!tokenizer.ok()) {
    Check(!tokenizer.status().message().empty());
    return;
  }
  const std::string text = data.ConsumeRemainingBytesAsString();
  CheckPromises(**tokenizer, text, text.size() / 2);
}

}  // namespace
}  // namespace strata::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  strata::tokenizer::RunOne(bytes, size);
  return 0;
}
