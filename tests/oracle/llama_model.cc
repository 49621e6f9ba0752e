#include "tests/oracle/llama_model.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace strata::oracle {
namespace {

// llama.cpp passes its parameter structs by value. On x86-64 a struct of more than 16 bytes goes by
// copy on the stack and comes back through a hidden pointer, so a larger opaque struct is passed
// the same way; single fields are set at their offsets in v0.5.0.
struct alignas(8) Parameters {
  std::array<std::byte, 1024> bytes;

  template <typename T>
  T Get(size_t offset) const {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
  }
  template <typename T>
  void Set(size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(T));
  }
};

namespace model_field {
constexpr size_t kVocabularyOnly = 72;   // bool
constexpr size_t kUseExtraBuffers = 74;  // bool: repacked weights
}  // namespace model_field

namespace context_field {
constexpr size_t kContext = 0;  // uint32_t, and so the next two
constexpr size_t kBatch = 4;
constexpr size_t kMicroBatch = 8;
constexpr size_t kThreads = 28;
constexpr size_t kThreadsBatch = 32;
constexpr size_t kFlashAttention = 52;  // int32_t: -1 auto, 0 off, 1 on
constexpr size_t kKeyType = 104;        // int32_t: tensor type
constexpr size_t kValueType = 108;
}  // namespace context_field

struct Batch {
  int32_t token_count;
  int32_t* tokens;
  float* embeddings;
  int32_t* positions;
  int32_t* sequence_counts;
  int32_t** sequences;
  int8_t* wants_logits;
};

// Errors only (level 4); 5 continues a line of any level.
void LogErrors(int level, const char* text, void*) {
  if (level == 4) std::fputs(text, stderr);
}

// The libraries are not instrumented, so the thread sanitizer would take the work their threads
// share for races: there, one thread does everything.
int ThreadsFor(const LlamaModelOptions& options) {
#ifdef __SANITIZE_THREAD__  // gcc
  return std::min(options.threads, 1);
#else
  return options.threads;
#endif
}

void StartOnce(const LlamaLibrary& llama) {
  static const bool started = [&] {
    llama.Function<void(void (*)(int, const char*, void*), void*)>("llama_log_set")(LogErrors,
                                                                                    nullptr);
    llama.Function<void(const char*)>("ggml_backend_load_all_from_path")(llama.folder().c_str());
    llama.Function<void()>("llama_backend_init")();
    return true;
  }();
  (void)started;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LlamaModel>> LlamaModel::Load(const LlamaLibrary& llama,
                                                             const std::string& path,
                                                             const LlamaModelOptions& options) {
  StartOnce(llama);
  auto parameters = llama.Function<Parameters()>("llama_model_default_params")();
  parameters.Set(model_field::kVocabularyOnly, options.vocabulary_only);
  parameters.Set(model_field::kUseExtraBuffers, options.repack_weights);
  std::unique_ptr<LlamaModel> result(new LlamaModel(llama));
  result->model_ = llama.Function<void*(const char*, Parameters)>("llama_model_load_from_file")(
      path.c_str(), parameters);
  if (result->model_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("llama.cpp does not load '", path, "'"));
  }
  result->vocabulary_ =
      llama.Function<const void*(const void*)>("llama_model_get_vocab")(result->model_);
  result->vocabulary_size_ =
      llama.Function<int32_t(const void*)>("llama_vocab_n_tokens")(result->vocabulary_);
  if (!options.vocabulary_only) STRATA_RETURN_IF_ERROR(result->MakeContext(options));
  return result;
}

absl::Status LlamaModel::MakeContext(const LlamaModelOptions& options) {
  auto parameters = llama_.Function<Parameters()>("llama_context_default_params")();
  if (parameters.Get<uint32_t>(context_field::kContext) != 512 ||
      parameters.Get<uint32_t>(context_field::kBatch) != 2048 ||
      parameters.Get<uint32_t>(context_field::kMicroBatch) != 512 ||
      parameters.Get<int32_t>(context_field::kThreads) != 4) {
    return absl::FailedPreconditionError(
        "llama.cpp's context parameters are laid out differently: another version than v0.5.0?");
  }
  parameters.Set(context_field::kContext, options.context);
  parameters.Set(context_field::kBatch, options.context);
  parameters.Set(context_field::kMicroBatch, options.micro_batch);
  parameters.Set(context_field::kThreads, ThreadsFor(options));
  parameters.Set(context_field::kThreadsBatch, ThreadsFor(options));
  parameters.Set(context_field::kFlashAttention, options.flash_attention ? 1 : 0);
  const auto cache_type = static_cast<int32_t>(options.cache);  // ids as in GGUF
  parameters.Set(context_field::kKeyType, cache_type);
  parameters.Set(context_field::kValueType, cache_type);
  context_ = llama_.Function<void*(void*, Parameters)>("llama_init_from_model")(model_, parameters);
  if (context_ == nullptr) return absl::InternalError("llama.cpp makes no context");
  max_tokens_ = options.context;
  return absl::OkStatus();
}

LlamaModel::~LlamaModel() {
  if (context_ != nullptr) llama_.Function<void(void*)>("llama_free")(context_);
  if (model_ != nullptr) llama_.Function<void(void*)>("llama_model_free")(model_);
}

std::vector<int32_t> LlamaModel::Tokenize(std::string_view text, bool add_special,
                                          bool parse_special) const {
  auto* tokenize =
      llama_.Function<int32_t(const void*, const char*, int32_t, int32_t*, int32_t, bool, bool)>(
          "llama_tokenize");
  std::vector<int32_t> tokens(text.size() + 16);
  for (;;) {
    const int32_t count =
        tokenize(vocabulary_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                 static_cast<int32_t>(tokens.size()), add_special, parse_special);
    if (count >= 0) {
      tokens.resize(count);
      return tokens;
    }
    tokens.resize(-count);  // more tokens than bytes: the needed number, negated
  }
}

std::string LlamaModel::TokenBytes(int32_t token, bool special) const {
  auto* piece = llama_.Function<int32_t(const void*, int32_t, char*, int32_t, int32_t, bool)>(
      "llama_token_to_piece");
  std::string bytes(64, '\0');
  for (;;) {
    const int32_t count =
        piece(vocabulary_, token, bytes.data(), static_cast<int32_t>(bytes.size()), 0, special);
    bytes.resize(count < 0 ? -count : count);
    if (count >= 0) return bytes;
  }
}

bool LlamaModel::IsEndOfGeneration(int32_t token) const {
  return llama_.Function<bool(const void*, int32_t)>("llama_vocab_is_eog")(vocabulary_, token);
}

absl::StatusOr<std::vector<float>> LlamaModel::Logits(std::span<const int32_t> tokens) {
  if (context_ == nullptr || tokens.empty() || tokens.size() > max_tokens_) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot run ", tokens.size(), " tokens; the context holds ", max_tokens_));
  }
  Reset();

  const auto count = static_cast<int32_t>(tokens.size());
  std::vector<int32_t> ids(tokens.begin(), tokens.end());
  std::vector<int32_t> positions(count);
  std::vector<int32_t> sequence_counts(count, 1);
  int32_t sequence = 0;
  std::vector<int32_t*> sequences(count, &sequence);
  std::vector<int8_t> wants_logits(count, 1);
  for (int32_t i = 0; i < count; ++i) positions[i] = i;
  const Batch batch{count,
                    ids.data(),
                    nullptr,
                    positions.data(),
                    sequence_counts.data(),
                    sequences.data(),
                    wants_logits.data()};
  if (const int rc = llama_.Function<int32_t(void*, Batch)>("llama_decode")(context_, batch);
      rc != 0) {
    return absl::InternalError(absl::StrCat("llama_decode returns ", rc));
  }
  auto* logits_of = llama_.Function<float*(void*, int32_t)>("llama_get_logits_ith");
  std::vector<float> logits;
  logits.reserve(static_cast<size_t>(count) * vocabulary_size_);
  for (int32_t i = 0; i < count; ++i) {
    const float* row = logits_of(context_, i);
    logits.insert(logits.end(), row, row + vocabulary_size_);
  }
  return logits;
}

void LlamaModel::Reset() {
  void* memory = llama_.Function<void*(const void*)>("llama_get_memory")(context_);
  llama_.Function<void(void*, bool)>("llama_memory_clear")(memory, true);
}

absl::Status LlamaModel::Append(std::span<const int32_t> tokens) {
  std::vector<int32_t> ids(tokens.begin(), tokens.end());
  const auto batch = llama_.Function<Batch(int32_t*, int32_t)>("llama_batch_get_one")(
      ids.data(), static_cast<int32_t>(ids.size()));
  if (const int rc = llama_.Function<int32_t(void*, Batch)>("llama_decode")(context_, batch);
      rc != 0) {
    return absl::InternalError(absl::StrCat("llama_decode returns ", rc));
  }
  llama_.Function<void(void*)>("llama_synchronize")(context_);
  return absl::OkStatus();
}

int32_t LlamaModel::MostLikely() const {
  const float* logits =
      llama_.Function<float*(void*, int32_t)>("llama_get_logits_ith")(context_, -1);
  return static_cast<int32_t>(std::max_element(logits, logits + vocabulary_size_) - logits);
}

}  // namespace strata::oracle
