#include "cli/cache_commands.h"

#include <algorithm>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/channel.h"

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace strata::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeout{60'000};
constexpr milliseconds kNoTimeout{0};
constexpr uint32_t kListTokens = 24;
constexpr uint32_t kShowTokens = 512;
constexpr size_t kListText = 60;  // characters
constexpr size_t kShortId = 12;   // digits; all 32 are accepted

std::string Hex(const std::string& id) { return std::string(absl::BytesToHexString(id)); }

std::string Megabytes(uint64_t bytes) {
  return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
}

std::string Age(uint64_t then_ms, uint64_t now_ms) {
  const uint64_t seconds = now_ms > then_ms ? (now_ms - then_ms) / 1000 : 0;
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 2 * 3600) return absl::StrCat(seconds / 60, " min");
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, " h");
  return absl::StrCat(seconds / 86400, " d");
}

std::string TextOf(const CacheContext& context, const v1::Conversation& conversation) {
  if (!context.text) return "";
  const auto& ids = conversation.own_tokens().ids();
  return context.text(std::span(ids.data(), static_cast<size_t>(ids.size())));
}

// In one line, without what would move a terminal's cursor.
std::string OneLine(std::string text, size_t most) {
  for (char& c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most) + "...";
}

absl::StatusOr<v1::ListResponse> Fetch(const CacheContext& context, uint32_t tokens, bool chains) {
  grpc::ClientContext call;
  rpc::PrepareCall(call, "", kTimeout);
  v1::ListRequest request;
  request.set_tokens(tokens);
  request.set_chains(chains);
  v1::ListResponse response;
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(context.kvstore->List(&call, request, &response)));
  return response;
}

absl::StatusOr<v1::Conversation> Find(const CacheContext& context, const std::string& id) {
  STRATA_ASSIGN_OR_RETURN(const v1::ListResponse all, Fetch(context, kShowTokens, true));
  const v1::Conversation* found = nullptr;
  for (const v1::Conversation& conversation : all.conversations()) {
    if (!absl::StartsWith(Hex(conversation.id()), id)) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("several conversations begin with '", id, "': give more of its digits"));
    }
    found = &conversation;
  }
  if (found == nullptr || id.empty()) {
    return absl::NotFoundError(absl::StrCat("no conversation '", id, "'; see strata cache list"));
  }
  return *found;
}

absl::Status List(const CacheContext& context) {
  STRATA_ASSIGN_OR_RETURN(const v1::ListResponse all, Fetch(context, kListTokens, true));
  *context.out << absl::StrFormat("%-12s  %8s  %8s  %10s  %7s  %4s  %s\n", "id", "tokens", "own",
                                  "own size", "used", "uses", "begins");
  for (const v1::Conversation& c : all.conversations()) {
    const int shared = c.chain_size() - static_cast<int>(c.own_blocks());
    const uint32_t own =
        shared < c.chain_size() ? c.tokens() - c.chain(std::max(shared, 0)).first_token() : 0;
    std::string notes = c.pinned() ? "[pinned] " : "";
    if (c.lineage() != v1::LINEAGE_EXACT) notes += "[spliced] ";
    *context.out << absl::StrFormat("%-12s  %8d  %8d  %10s  %7s  %4d  %s\n",
                                    Hex(c.id()).substr(0, kShortId), c.tokens(), own,
                                    Megabytes(c.own_bytes()), Age(c.last_used_ms(), context.now_ms),
                                    c.uses(), notes + OneLine(TextOf(context, c), kListText));
  }
  grpc::ClientContext call;
  rpc::PrepareCall(call, "", kTimeout);
  v1::KvStoreStatusResponse status;
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(context.kvstore->Status(&call, {}, &status)));
  *context.out << all.conversations_size() << " conversations, " << status.blocks() << " blocks, "
               << Megabytes(status.bytes()) << " of " << Megabytes(status.budget_bytes()) << " at "
               << status.path() << "\n";
  if (status.degraded())
    *context.out << "nothing new is kept: " << status.degraded_reason() << "\n";
  return absl::OkStatus();
}

absl::Status Show(const CacheContext& context, const std::string& id) {
  STRATA_ASSIGN_OR_RETURN(const v1::Conversation c, Find(context, id));
  *context.out << "id         " << Hex(c.id()) << "\n"
               << "model etc. " << Hex(c.root()) << "\n"
               << "tokens     " << c.tokens() << " in " << c.blocks() << " blocks, the last "
               << c.own_blocks() << " its own (" << Megabytes(c.own_bytes()) << ")\n"
               << "last used  " << Age(c.last_used_ms(), context.now_ms) << " ago, " << c.uses()
               << " times\n"
               << "pinned     " << (c.pinned() ? "yes" : "no") << "\n";
  for (const v1::BlockRef& block : c.chain()) {
    *context.out << absl::StrFormat("  %s  tokens %d to %d, %s%s\n", Hex(block.id()),
                                    block.first_token(), block.first_token() + block.tokens() - 1,
                                    Megabytes(block.bytes()),
                                    block.lineage() == v1::LINEAGE_EXACT ? "" : ", spliced");
  }
  const std::string text = TextOf(context, c);
  if (!text.empty()) *context.out << "its own text begins:\n" << text << "\n";
  return absl::OkStatus();
}

absl::Status Pin(const CacheContext& context, const std::string& id, bool pinned) {
  STRATA_ASSIGN_OR_RETURN(const v1::Conversation c, Find(context, id));
  grpc::ClientContext call;
  rpc::PrepareCall(call, "", kTimeout);
  v1::PinRequest request;
  request.add_ids(c.id());  // what leads to it stays as long as it does
  request.set_pinned(pinned);
  v1::PinResponse response;
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(context.kvstore->Pin(&call, request, &response)));
  *context.out << Hex(c.id()).substr(0, kShortId)
               << (response.changed() == 0 ? " was " : " is now ")
               << (pinned ? "pinned" : "not pinned") << "\n";
  return absl::OkStatus();
}

absl::Status Drop(const CacheContext& context, const std::string& id) {
  v1::DeleteRequest request;
  if (id == "all") {
    request.set_all(true);
  } else {
    STRATA_ASSIGN_OR_RETURN(const v1::Conversation c, Find(context, id));
    // The part that others share stays.
    for (int i = c.chain_size() - static_cast<int>(c.own_blocks()); i < c.chain_size(); ++i) {
      request.add_ids(c.chain(i).id());
    }
  }
  grpc::ClientContext call;
  rpc::PrepareCall(call, "", kTimeout);
  v1::DeleteResponse response;
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(context.kvstore->Delete(&call, request, &response)));
  *context.out << "dropped " << response.deleted() << " blocks\n";
  return absl::OkStatus();
}

absl::Status Verify(const CacheContext& context) {
  grpc::ClientContext call;
  rpc::PrepareCall(call, "", kNoTimeout);
  const auto reader = context.kvstore->Verify(&call, {});
  v1::VerifyResponse last;
  for (v1::VerifyResponse response; reader->Read(&response);) last = response;
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(reader->Finish()));
  *context.out << last.blocks() << " blocks, " << Megabytes(last.bytes()) << " read, "
               << last.damaged() << " damaged" << (last.damaged() > 0 ? " and dropped" : "")
               << "\n";
  if (last.damaged() == 0) return absl::OkStatus();
  return absl::DataLossError(
      "the drive or something on it changed stored blocks; see kvstore's log");
}

absl::Status CollectGarbage(const CacheContext& context) {
  grpc::ClientContext call;
  rpc::PrepareCall(call, "", kNoTimeout);
  v1::CollectGarbageResponse response;
  STRATA_RETURN_IF_ERROR(rpc::FromGrpc(context.kvstore->CollectGarbage(&call, {}, &response)));
  *context.out << "freed " << Megabytes(response.freed_bytes()) << ", "
               << Megabytes(response.disk_bytes()) << " in use\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCacheCommand(const CacheContext& context, std::span<const std::string> arguments) {
  const std::string command = arguments.empty() ? "list" : arguments[0];
  const bool takes_id =
      command == "show" || command == "pin" || command == "unpin" || command == "drop";
  if (arguments.size() > (takes_id ? 2 : 1)) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", arguments.back(), "'"));
  }
  if (takes_id && arguments.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("which one? strata cache ", command, " ID; see strata cache list"));
  }
  if (command == "list") return List(context);
  if (command == "show") return Show(context, arguments[1]);
  if (command == "pin" || command == "unpin") return Pin(context, arguments[1], command == "pin");
  if (command == "drop") return Drop(context, arguments[1]);
  if (command == "verify") return Verify(context);
  if (command == "gc") return CollectGarbage(context);
  return absl::InvalidArgumentError(absl::StrCat(
      "'", command, "' is none of list, show ID, pin ID, unpin ID, drop ID|all, verify, gc"));
}

}  // namespace strata::cli
