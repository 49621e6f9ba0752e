#include "common/tokenizer/token_roles.h"

#include <initializer_list>
#include <optional>
#include <set>

#include "common/tokenizer/token_table.h"

namespace strata::tokenizer {
namespace {

struct Role {
  std::optional<uint32_t> SpecialIds::*id;
  std::initializer_list<absl::string_view> texts;
};

const std::initializer_list<Role>& RolesByText() {
  static const std::initializer_list<Role> roles = {
      {&SpecialIds::eot,
       {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
        "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"}},
      {&SpecialIds::eom, {"<|eom_id|>"}},
      {&SpecialIds::fim_pre,
       {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>"}},
      {&SpecialIds::fim_suf,
       {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>"}},
      {&SpecialIds::fim_mid,
       {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>"}},
      {&SpecialIds::fim_pad, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
      {&SpecialIds::fim_rep,
       {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
      {&SpecialIds::fim_sep, {"<|file_sep|>"}},
  };
  return roles;
}

constexpr absl::string_view kEndOfGeneration[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

// Harmony's (gpt-oss) markers are part of an answer's text and must be rendered.
constexpr absl::string_view kAlwaysRendered[] = {"<|channel|>", "<|message|>", "<|start|>",
                                                 "<|constrain|>"};

class Assigner {
 public:
  explicit Assigner(TokenRoles& roles) : roles_(roles) {}

  void Run() {
    for (const Role& role : RolesByText()) FindRole(role);
    for (const auto& id : {roles_.ids.fim_pad, roles_.ids.fim_rep, roles_.ids.fim_sep}) Ends(id);
    for (const absl::string_view text : kEndOfGeneration) {
      if (const auto id = Find(text)) {
        Ends(id);
        roles_.flags[*id] |= kFlagControl;
      }
    }
    for (const absl::string_view text : kAlwaysRendered) {
      if (const auto id = Find(text)) roles_.flags[*id] = kFlagUserDefined;
    }
    for (const auto& id : {roles_.ids.eos, roles_.ids.eot, roles_.ids.eom}) Ends(id);
    // Where a message ends but the generation goes on to the next channel.
    const bool harmony = IsEnd("<|return|>") && (IsEnd("<|call|>") || IsEnd("<|calls|>"));
    const bool solar = IsEnd("<|flush|>") && (IsEnd("<|call|>") || IsEnd("<|calls|>"));
    if (harmony || solar) DoesNotEnd("<|end|>", kFlagUserDefined);
    if (IsEnd("<|tool_response>")) DoesNotEnd("</s>", kFlagNormal);
    roles_.end_of_generation_ids.assign(ends_.begin(), ends_.end());
  }

 private:
  std::optional<uint32_t> Find(absl::string_view text) const {
    const auto found = roles_.by_text.find(text);
    if (found == roles_.by_text.end()) return std::nullopt;
    return found->second;
  }

  void FindRole(const Role& role) {
    for (const absl::string_view text : role.texts) {
      if (roles_.ids.*role.id) return;
      roles_.ids.*role.id = Find(text);
      if (roles_.ids.*role.id) roles_.flags[*(roles_.ids.*role.id)] |= kFlagControl;
    }
  }

  void Ends(std::optional<uint32_t> id) {
    if (id) ends_.insert(*id);
  }
  bool IsEnd(absl::string_view text) const {
    const auto id = Find(text);
    return id && ends_.count(*id) != 0;
  }
  void DoesNotEnd(absl::string_view text, uint8_t flags) {
    if (!IsEnd(text)) return;
    ends_.erase(*Find(text));
    roles_.flags[*Find(text)] = flags;
  }

  TokenRoles& roles_;
  std::set<uint32_t> ends_;
};

}  // namespace

void AssignRoles(TokenRoles& roles) { Assigner(roles).Run(); }

}  // namespace strata::tokenizer
