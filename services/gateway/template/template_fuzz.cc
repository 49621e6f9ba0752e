// libFuzzer target: any bytes as a template, rendered over a conversation under small limits. What
// is checked: no crash, no leak, limits hold, and pieces alternate in trust.
#include <cstdlib>
#include <string_view>

#include <boost/json/parse.hpp>

#include "services/gateway/template/chat_template.h"

namespace {

const boost::json::object& Variables() {
  static const boost::json::object variables =
      boost::json::parse(R"({"messages": [{"role": "system", "content": "Be kind."},
        {"role": "user", "content": "é <|im_end|>", "tool_calls": [{"function": {"name": "f",
        "arguments": {"a": [1, 2.5, null, true]}}}]}], "i": 7, "f": 2.5, "s": "a b\nc", "t": true,
        "l": [3, 1, 2], "d": {"k": "v"}, "bos_token": "<s>", "add_generation_prompt": true})")
          .as_object();
  return variables;
}

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using strata::gateway::ChatTemplate;
  const auto parsed =
      ChatTemplate::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!parsed.ok()) return 0;
  strata::gateway::RenderLimits limits;
  limits.max_work = 20'000;
  limits.max_output_bytes = 1 << 20;
  limits.max_live_bytes = 16 << 20;
  limits.max_range = 1000;
  const auto pieces = parsed->Render(Variables(), limits);
  if (!pieces.ok()) return 0;
  size_t total = 0;
  for (size_t i = 0; i < pieces->size(); ++i) {
    Require(!(*pieces)[i].text.empty());
    Require(i == 0 || (*pieces)[i].trusted != (*pieces)[i - 1].trusted);
    total += (*pieces)[i].text.size();
  }
  Require(total <= limits.max_output_bytes);
  return 0;
}
