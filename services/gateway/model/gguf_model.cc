#include "services/gateway/model/gguf_model.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "common/base/log.h"
#include "common/gguf/reader.h"
#include "common/tokenizer/tokenizer.h"
#include "services/gateway/template/chat_renderer.h"

namespace strata::gateway {
namespace {

namespace json = boost::json;

// "/models/Name-Q4_K_M-00001-of-00003.gguf" -> "Name-Q4_K_M"
std::string NameOf(const std::string& path) {
  std::string stem = std::filesystem::path(path).stem().string();
  constexpr std::string_view kShard = "-00000-of-00000";
  if (stem.size() <= kShard.size()) return stem;
  const std::string_view tail = std::string_view(stem).substr(stem.size() - kShard.size());
  bool is_shard = true;
  for (size_t i = 0; i < kShard.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    is_shard &= kShard[i] == '0' ? digit : tail[i] == kShard[i];
  }
  if (is_shard) stem.resize(stem.size() - kShard.size());
  return stem;
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read chat template '", path, "'"));
  return text;
}

// Published with newer files by the people who trained the model. What they do not say follows
// common practice for local models.
v1::SamplingParams DefaultSampling(const gguf::Metadata& metadata) {
  const auto number = [&](const char* key, double otherwise) {
    const auto value = metadata.GetFloat(key, otherwise);
    return static_cast<float>(value.ok() ? *value : otherwise);
  };
  v1::SamplingParams sampling;
  sampling.set_temperature(number("general.sampling.temp", 0.8));
  sampling.set_top_k(static_cast<uint32_t>(number("general.sampling.top_k", 40)));
  sampling.set_top_p(number("general.sampling.top_p", 0.95));
  sampling.set_min_p(number("general.sampling.min_p", 0.05));
  return sampling;
}

class FileModel : public Model {
 public:
  FileModel(std::string name, std::unique_ptr<tokenizer::Tokenizer> tokenizer,
            v1::SamplingParams sampling)
      : name_(std::move(name)), tokenizer_(std::move(tokenizer)), sampling_(std::move(sampling)) {}

  // Keeps the reason when the template cannot be used.
  void SetTemplate(const std::string& source) {
    json::object tokens;
    tokens["bos_token"] = TokenText(tokenizer_->bos_id());
    tokens["eos_token"] = TokenText(tokenizer_->eos_id());
    tokens["pad_token"] = TokenText(tokenizer_->pad_id());
    absl::StatusOr<ChatRenderer> renderer = ChatRenderer::Create(source, std::move(tokens));
    if (renderer.ok()) {
      renderer_.emplace(*std::move(renderer));
    } else {
      template_error_ = renderer.status();
      LogWarning("chat requests will be refused: ", template_error_.message());
    }
  }

  const std::string& name() const override { return name_; }
  uint32_t vocab_size() const override { return static_cast<uint32_t>(tokenizer_->vocab_size()); }

  std::vector<uint32_t> Encode(std::span<const TextPart> parts, bool with_bos) const override {
    std::vector<uint32_t> tokens;
    std::vector<tokenizer::Segment> segments;
    const auto encode = [&] {
      const bool first = tokens.empty();
      const std::vector<uint32_t> more =
          with_bos && first ? tokenizer_->EncodeWithBos(segments) : tokenizer_->Encode(segments);
      tokens.insert(tokens.end(), more.begin(), more.end());
      segments.clear();
    };
    segments.reserve(parts.size());
    for (const TextPart& part : parts) {
      if (part.tokens.empty()) {
        segments.push_back({part.text, part.trusted});
      } else {
        encode();
        tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      }
    }
    encode();
    return tokens;
  }
  std::string_view Piece(uint32_t id) const override { return tokenizer_->Piece(id); }
  bool IsControl(uint32_t id) const override { return tokenizer_->IsControl(id); }
  std::span<const uint32_t> end_of_generation() const override {
    return tokenizer_->end_of_generation_ids();
  }
  std::optional<uint32_t> FindToken(std::string_view text) const override {
    return tokenizer_->FindToken(text);
  }

  absl::StatusOr<std::vector<TextPart>> Render(const json::object& variables) const override {
    if (!renderer_) return template_error_;
    STRATA_ASSIGN_OR_RETURN(std::vector<ChatTemplate::Piece> pieces, renderer_->Render(variables));
    std::vector<TextPart> parts;
    parts.reserve(pieces.size());
    for (ChatTemplate::Piece& piece : pieces) {
      parts.push_back({std::move(piece.text), piece.trusted, {}});
    }
    return parts;
  }
  std::string_view chat_template() const override {
    return renderer_ ? std::string_view(renderer_->source()) : std::string_view();
  }
  const v1::SamplingParams& default_sampling() const override { return sampling_; }

 private:
  std::string TokenText(std::optional<uint32_t> id) const {
    return id ? std::string(tokenizer_->Piece(*id)) : std::string();
  }

  const std::string name_;
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  const v1::SamplingParams sampling_;
  std::optional<ChatRenderer> renderer_;
  absl::Status template_error_ = absl::FailedPreconditionError(
      "this model has no chat template; set gateway.chat_template_file or use /v1/completions");
};

}  // namespace

absl::StatusOr<GgufModel> OpenGgufModel(const std::string& path, const std::string& template_file) {
  STRATA_ASSIGN_OR_RETURN(const std::unique_ptr<gguf::Model> file, gguf::Model::Open(path));
  const gguf::Metadata& metadata = file->metadata();
  STRATA_ASSIGN_OR_RETURN(auto tokenizer, tokenizer::Tokenizer::FromGguf(metadata));
  auto model =
      std::make_unique<FileModel>(NameOf(path), std::move(tokenizer), DefaultSampling(metadata));
  if (!template_file.empty()) {
    STRATA_ASSIGN_OR_RETURN(const std::string source, ReadTextFile(template_file));
    model->SetTemplate(source);
  } else if (metadata.Find("tokenizer.chat_template") != nullptr) {
    STRATA_ASSIGN_OR_RETURN(const std::string_view source,
                            metadata.GetString("tokenizer.chat_template"));
    model->SetTemplate(std::string(source));
  }
  GgufModel result;
  STRATA_ASSIGN_OR_RETURN(const std::string_view other, metadata.GetString("general.name", ""));
  if (other != model->name()) result.other_name = std::string(other);
  const auto hash = file->Fingerprint();
  result.fingerprint.assign(reinterpret_cast<const char*>(hash.data()), hash.size());
  result.model = std::move(model);
  return result;
}

}  // namespace strata::gateway
