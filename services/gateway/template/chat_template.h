// A model's chat template: Jinja source out of a model file, compiled once, rendered per request.
//
// The interpreter is our own. It follows Jinja 3 with the settings every chat template is written
// for (trim_blocks, lstrip_blocks, loop controls, tojson that keeps key order), has no way to reach
// files, attributes of the host or other templates, and ends within RenderLimits whatever the
// template does.
//
// The result is a list of pieces: the prompt cut where trust changes. Trusted characters come from
// the template itself (and from variables named in RenderOptions), all others from the request.
// Control tokens may be matched only inside a trusted piece. Apart from that a cut means nothing:
// ordinary text must be tokenized across it, as if the pieces were one string.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "services/gateway/template/render_limits.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace strata::gateway {

struct RenderOptions {
  // Variables whose strings count as the template's own.
  std::vector<std::string> trusted_variables = {"bos_token", "eos_token", "pad_token", "unk_token",
                                                "sep_token", "cls_token", "mask_token"};
  // What strftime_now calls now; the system clock when absent. Seconds since 1970, local time zone.
  std::optional<int64_t> now_seconds;
};

class ChatTemplate {
 public:
  // A larger source is refused. The largest public template is about 20 KiB.
  static constexpr size_t kMaxSourceBytes = size_t{1} << 20;

  // Errors: InvalidArgument "chat template: line N: ...".
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source);

  struct Piece {
    std::string text;
    bool trusted;
    bool operator==(const Piece&) const = default;
  };

  // Neighbouring pieces differ in trust; none is empty. Thread-safe.
  // Errors:
  //   InvalidArgument, RaisedByTemplate(status): the template called raise_exception; the message
  //     is the template's own.
  //   FailedPrecondition: the template does something impossible, "chat template: line N: ...".
  //   ResourceExhausted: a limit was reached, with the line.
  absl::StatusOr<std::vector<Piece>> Render(const boost::json::object& variables,
                                            const RenderLimits& limits = {},
                                            const RenderOptions& options = {}) const;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

// The error of raise_exception(message), and whether a status is one.
absl::Status TemplateRaised(std::string_view message);
bool RaisedByTemplate(const absl::Status& status);

// All pieces as one string.
std::string JoinPieces(const std::vector<ChatTemplate::Piece>& pieces);

}  // namespace strata::gateway
