#include "services/gateway/template/chat_template.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "services/gateway/template/interpreter.h"
#include "services/gateway/template/json_values.h"
#include "services/gateway/template/parser.h"
#include "services/gateway/template/runtime.h"

#include "absl/strings/cord.h"

namespace strata::gateway {
namespace {

constexpr absl::string_view kRaisedPayload = "strata/template-raised";

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

absl::Status Located(const absl::Status& status, uint32_t line) {
  if (RaisedByTemplate(status)) return status;
  if (line == 0) return Annotate(status, "chat template");
  return Annotate(status, absl::StrCat("chat template: line ", line));
}

std::vector<ChatTemplate::Piece> Cut(const jinja::Text& text) {
  std::vector<ChatTemplate::Piece> pieces;
  size_t position = 0;
  const auto add = [&](size_t end, bool trusted) {
    if (end > position) pieces.push_back({text.bytes().substr(position, end - position), trusted});
    position = end;
  };
  for (const jinja::Text::Run& run : text.untrusted()) {
    add(run.begin, true);
    add(run.end, false);
  }
  add(text.size(), true);
  return pieces;
}

}  // namespace

struct ChatTemplate::Program {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", source.size(),
                                                   " bytes of source, limit ", kMaxSourceBytes));
  }
  absl::StatusOr<jinja::Block> block = jinja::ParseTemplate(source);
  if (!block.ok()) return Annotate(block.status(), "chat template");
  return ChatTemplate(std::make_unique<const Program>(Program{*std::move(block)}));
}

absl::StatusOr<std::vector<ChatTemplate::Piece>> ChatTemplate::Render(
    const boost::json::object& variables, const RenderLimits& limits,
    const RenderOptions& options) const {
  jinja::Runtime runtime(limits, options.now_seconds.value_or(Now()));
  jinja::Dict* names = runtime.heap().NewDict();
  for (const boost::json::key_value_pair& pair : variables) {
    const std::string name(pair.key().data(), pair.key().size());
    const bool trusted =
        std::find(options.trusted_variables.begin(), options.trusted_variables.end(), name) !=
        options.trusted_variables.end();
    absl::StatusOr<jinja::Value> value = jinja::FromJson(runtime, pair.value(), trusted);
    if (!value.ok()) return Annotate(value.status(), absl::StrCat("variable '", name, "'"));
    names->SetText(runtime.heap().NewTrusted(name), *std::move(value));
  }
  jinja::Interpreter interpreter(runtime, *names);
  const absl::StatusOr<jinja::Text> text = interpreter.Run(program_->block);
  if (!text.ok()) return Located(text.status(), interpreter.error_line());
  return Cut(*text);
}

absl::Status TemplateRaised(std::string_view message) {
  absl::Status status = absl::InvalidArgumentError(A(message));
  status.SetPayload(kRaisedPayload, absl::Cord());
  return status;
}

bool RaisedByTemplate(const absl::Status& status) {
  return status.GetPayload(kRaisedPayload).has_value();
}

std::string JoinPieces(const std::vector<ChatTemplate::Piece>& pieces) {
  std::string all;
  for (const ChatTemplate::Piece& piece : pieces) all += piece.text;
  return all;
}

}  // namespace strata::gateway
