#include "services/gateway/testing/tiny_model.h"

#include <boost/json/parse.hpp>

#include "services/gateway/json/json.h"

namespace strata::gateway::testing {

namespace json = boost::json;

TinyModel::TinyModel(std::vector<std::string> words) : pieces_(1024) {
  for (int i = 0; i < 256; ++i) pieces_[i] = std::string(1, static_cast<char>(i));
  pieces_[kEnd] = "<|end|>";
  pieces_[kBos] = "<|bos|>";
  pieces_[kUser] = "<|user|>";
  pieces_[kAssistant] = "<|assistant|>";
  for (size_t i = 0; i < words.size(); ++i) pieces_[kFirstWord + i] = words[i];
  sampling_.set_temperature(0.8F);
}

std::vector<uint32_t> TinyModel::Bytes(std::string_view text) {
  std::vector<uint32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<uint32_t> TinyModel::Encode(std::span<const TextPart> parts, bool with_bos) const {
  std::vector<uint32_t> ids;
  if (with_bos) ids.push_back(kBos);
  for (const TextPart& part : parts) {
    if (!part.tokens.empty()) {
      ids.insert(ids.end(), part.tokens.begin(), part.tokens.end());
      continue;
    }
    for (size_t i = 0; i < part.text.size();) {
      uint32_t id = static_cast<unsigned char>(part.text[i]);
      for (uint32_t control = kEnd; part.trusted && control <= kAssistant; ++control) {
        if (std::string_view(part.text).substr(i).starts_with(pieces_[control])) id = control;
      }
      ids.push_back(id);
      i += pieces_[id].size();
    }
  }
  return ids;
}

std::optional<uint32_t> TinyModel::FindToken(std::string_view text) const {
  for (uint32_t id = kEnd; id < pieces_.size(); ++id) {
    if (!pieces_[id].empty() && pieces_[id] == text) return id;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<TextPart>> TinyModel::Render(const json::object& variables) const {
  std::vector<TextPart> parts;
  for (const json::value& message : variables.at("messages").as_array()) {
    const std::string role(message.at("role").as_string());
    if (role == "forbidden") return absl::InvalidArgumentError("the template refuses this role");
    parts.push_back({role == "assistant" ? "<|assistant|>" : "<|user|>", true, {}});
    const json::value* content = message.as_object().if_contains("content");
    if (content != nullptr) {
      parts.push_back(
          {content->is_string() ? std::string(content->as_string()) : ToJson(*content), false, {}});
    }
    const json::value* calls = message.as_object().if_contains("tool_calls");
    for (size_t i = 0; calls != nullptr && i < calls->as_array().size(); ++i) {
      const json::object& function = calls->as_array()[i].at("function").as_object();
      parts.push_back({"\n<tool_call>\n", true, {}});
      parts.push_back(
          {ToJson(json::object{{"name", function.at("name")},
                               {"arguments", json::parse(function.at("arguments").as_string())}}),
           false,
           {}});
      parts.push_back({"\n</tool_call>", true, {}});
    }
    parts.push_back({"<|end|>", true, {}});
  }
  if (const json::value* tools = variables.if_contains("tools"); tools != nullptr) {
    parts.push_back({ToJson(*tools), false, {}});
  }
  parts.push_back({"<|assistant|>", true, {}});
  if (!prompt_tail_.empty()) parts.push_back({prompt_tail_, true, {}});
  return parts;
}

}  // namespace strata::gateway::testing
