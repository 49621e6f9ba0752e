#include "services/compute/engine/splicer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/log.h"
#include "common/base/status.h"

namespace strata::compute {
namespace {

// The layer whose keys are compared: the first one whose keys depend on the text before.
constexpr int kProbeLayer = 1;

int32_t SlotOf(const Sequence& sequence, int position) {
  return sequence.pages[static_cast<size_t>(position / KvCache::kPageTokens)] *
             KvCache::kPageTokens +
         position % KvCache::kPageTokens;
}

}  // namespace

void Splicer::Prepare(Sequence& sequence) const {
  const v1::RestorePlan& plan = sequence.request.restore();
  if (plan.runs().empty()) return;
  const bool movable = parts_.kv->shape().movable();
  auto pieces = MovedRowsOf(plan, sequence.prompt_tokens, KvCache::kPageTokens);
  if (!pieces.ok() || !movable ||
      (plan.splice() != v1::SPLICE_SAFE && plan.splice() != v1::SPLICE_FAST)) {
    LogWarning("request ", sequence.request_id, " is read without moving anything: ",
               pieces.ok() ? "its plan does not fit this model or has no splice mode"
                           : pieces.status().message());
    sequence.request.mutable_restore()->clear_runs();
    return;
  }
  sequence.splice.pieces = *std::move(pieces);
  sequence.splice.lineage =
      plan.splice() == v1::SPLICE_FAST ? state::Lineage::kFast : state::Lineage::kSafe;
}

void Splicer::TakeBlock(Sequence& sequence, size_t index, std::span<const std::byte> bytes) {
  const MovedRows& piece = sequence.splice.pieces[index];
  parts_.kv->WriteRows(sequence.pages, piece.position, bytes, piece.first_row, piece.rows);
  if (piece.shift != 0) {
    std::vector<int32_t> slots;
    slots.reserve(static_cast<size_t>(piece.rows));
    for (int i = 0; i < piece.rows; ++i) slots.push_back(SlotOf(sequence, piece.position + i));
    parts_.model->MoveKeys(*parts_.backend, *parts_.kv, scratch_, slots, piece.shift);
  }
  AppendRange(sequence.splice.moved, {piece.position, piece.position + piece.rows});
}

double Splicer::BudgetOf(const Sequence& sequence) const {
  const bool has_own = sequence.request.has_splice_budget();
  return std::clamp(has_own ? double{sequence.request.splice_budget()} : budget_, 0.0, 1.0);
}

void Splicer::Begin(Sequence& sequence) {
  SpliceState& splice = sequence.splice;
  if (splice.moved.empty()) return;
  if (splice.lineage == state::Lineage::kSafe && BudgetOf(sequence) > 0) {
    splice.probing = true;
    splice.probe_next = sequence.computed;
    splice.probe_last = splice.moved.back().last;
  } else {
    SetReadingOrder(sequence, {});
  }
}

void Splicer::Probe(Sequence& sequence) {
  SpliceState& splice = sequence.splice;
  const int last = std::min(splice.probe_next + rows_, splice.probe_last);
  const absl::Status status = CompareKeys(sequence, splice.probe_next, last);
  if (!status.ok()) {
    // Reading everything meets the same trouble and has the patience for it.
    LogWarning("request ", sequence.request_id, " is read as a whole: ", status.message());
    splice.moved.clear();
    splice.probing = false;
    SetReadingOrder(sequence, {});
    return;
  }
  splice.probe_next = last;
  if (last < splice.probe_last) return;
  splice.probing = false;
  SetReadingOrder(sequence, ChooseAgain(splice.moved, splice.deviations, BudgetOf(sequence)));
}

absl::Status Splicer::CompareKeys(Sequence& sequence, int first, int last) {
  SpliceState& splice = sequence.splice;
  const auto count = static_cast<size_t>(last - first);
  const int layer = std::min(kProbeLayer, parts_.kv->shape().layers - 1);
  std::vector<int32_t> tokens(sequence.tokens.begin() + first, sequence.tokens.begin() + last);
  std::vector<int32_t> positions(count);
  std::iota(positions.begin(), positions.end(), first);
  std::vector<int32_t> slots;
  slots.reserve(count);
  for (const int32_t p : positions) slots.push_back(SlotOf(sequence, p));
  const std::vector<int32_t> owners(count, 0);
  const std::span<const int32_t> table(sequence.pages);
  const Scratch::Scope scope(scratch_);
  Step step{.backend = *parts_.backend,
            .experts = parts_.experts,
            .kv = *parts_.kv,
            .scratch = scratch_,
            .priority = ExpertPriority::kPrompt,
            .tokens = tokens,
            .positions = positions,
            .slots = slots,
            .attention = {owners, positions, std::span(&table, 1)},
            .x = {},
            .cos_sin = {}};
  const auto width = static_cast<size_t>(parts_.kv->shape().width());
  std::vector<float> fresh(count * width);
  std::vector<float> moved(width);
  STRATA_RETURN_IF_ERROR(parts_.model->FreshKeys(step, layer, fresh));
  for (const TokenRange& range : splice.moved) {
    for (int p = std::max(first, range.first); p < std::min(last, range.last); ++p) {
      const auto row = static_cast<size_t>(p - first);
      parts_.kv->ReadKey(layer, slots[row], moved);
      float sum = 0;
      for (size_t i = 0; i < width; ++i) {
        const float d = fresh[row * width + i] - moved[i];
        sum += d * d;
      }
      splice.deviations.push_back(sum);
    }
  }
  return absl::OkStatus();
}

void Splicer::SetReadingOrder(Sequence& sequence, std::span<const int32_t> again) {
  SpliceState& splice = sequence.splice;
  splice.unread = PositionsToRead(sequence.computed, sequence.prompt_tokens, splice.moved, again);
  splice.spliced_tokens += TokensIn(splice.moved) - static_cast<int>(again.size());
  for (const TokenRange& range : splice.moved) {
    for (int p = range.first; p < range.last && splice.first_spliced == INT_MAX; ++p) {
      if (!std::binary_search(again.begin(), again.end(), p)) splice.first_spliced = p;
    }
  }
  sequence.computed = sequence.prompt_tokens - static_cast<int>(splice.unread.size());
}

}  // namespace strata::compute
