#include "services/kvstore/align/seed_index.h"

#include <algorithm>

namespace strata::kvstore {
namespace {

constexpr size_t kFilterBits = 16;              // of one gram, at least half of that
constexpr uint64_t kBase = 0x9E3779B97F4A7C15;  // of the polynomial; odd, no pattern in its bits

// The polynomial's low bits depend on few bits of the tokens only (the finalizer of MurmurHash3).
uint64_t Mix(uint64_t h) {
  h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCD;
  h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53;
  return h ^ (h >> 33);
}

uint64_t HashOf(std::span<const uint32_t> gram) {
  uint64_t h = 0;
  for (const uint32_t t : gram) h = h * kBase + t + 1;
  return Mix(h);
}

}  // namespace

std::vector<uint64_t> SeedIndex::HashesOf(std::span<const uint32_t> tokens) {
  std::vector<uint64_t> hashes;
  if (tokens.size() < kGram) return hashes;
  hashes.reserve(tokens.size() - kGram + 1);
  uint64_t leaving = 1;  // factor of the token that leaves the window
  for (uint32_t i = 1; i < kGram; ++i) leaving *= kBase;
  uint64_t h = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i >= kGram) h -= leaving * (uint64_t{tokens[i - kGram]} + 1);
    h = h * kBase + tokens[i] + 1;
    if (i + 1 >= kGram) hashes.push_back(Mix(h));
  }
  return hashes;
}

void SeedIndex::GrowFilter() {
  filter_.assign(filter_.size() * 2, 0);
  for (const auto& [hash, places] : places_) {
    filter_[FilterBit(hash) / 64] |= uint64_t{1} << (FilterBit(hash) % 64);
  }
}

void SeedIndex::Add(const BlockId& id, std::span<const uint32_t> tokens) {
  for (uint32_t offset = 0; offset + kGram <= tokens.size(); offset += kGram) {
    const uint64_t hash = HashOf(tokens.subspan(offset, kGram));
    auto& places = places_[hash];
    if (places.size() == kMaxPlaces) places.erase(places.begin());
    places.push_back({id, offset});
    filter_[FilterBit(hash) / 64] |= uint64_t{1} << (FilterBit(hash) % 64);
    if (places_.size() * kFilterBits > filter_.size() * 64) GrowFilter();
  }
}

void SeedIndex::Remove(const BlockId& id, std::span<const uint32_t> tokens) {
  for (uint32_t offset = 0; offset + kGram <= tokens.size(); offset += kGram) {
    const auto it = places_.find(HashOf(tokens.subspan(offset, kGram)));
    if (it == places_.end()) continue;  // forgotten for newer places and these removed since
    auto& places = it->second;
    const auto place = std::find_if(places.begin(), places.end(), [&](const Place& p) {
      return p.block == id && p.offset == offset;
    });
    if (place != places.end()) places.erase(place);
    if (places.empty()) places_.erase(it);
  }
}

std::span<const SeedIndex::Place> SeedIndex::Find(uint64_t hash) const {
  if ((filter_[FilterBit(hash) / 64] >> (FilterBit(hash) % 64) & 1) == 0) return {};
  const auto it = places_.find(hash);
  if (it == places_.end()) return {};
  return {it->second.data(), it->second.size()};
}

}  // namespace strata::kvstore
