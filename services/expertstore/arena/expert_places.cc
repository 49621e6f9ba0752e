#include "services/expertstore/arena/expert_places.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/quant/weight_layout.h"

namespace strata::expertstore {
namespace {

std::string Hex(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&text, absl::Hex(static_cast<int>(bytes[i]), absl::kZeroPad2));
  }
  return text;
}

}  // namespace

Places PlacesInModel(const gguf::ExpertGeometry& geometry) {
  Places places;
  for (const gguf::ExpertLayer& from : geometry.layers) {
    LayerPlaces layer;
    layer.layer = from.layer;
    layer.experts = from.experts;
    for (const gguf::ExpertPart& part : from.parts) {
      layer.parts.push_back({part.file, part.offset, part.bytes_per_expert, part.bytes_per_expert,
                             part.type, part.row_bytes});
    }
    places.push_back(std::move(layer));
  }
  return places;
}

absl::StatusOr<Places> PlacesInPack(const pack::PackHeader& header,
                                    const gguf::ExpertGeometry& geometry,
                                    const shm::Fingerprint& fingerprint) {
  if (std::memcmp(header.fingerprint.data(), fingerprint.data(), fingerprint.size()) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the pack was made from another model (fingerprint ",
        Hex(reinterpret_cast<const uint8_t*>(header.fingerprint.data()), fingerprint.size()),
        ", the configured model has ", Hex(fingerprint.data(), fingerprint.size()),
        "); make one from this model with strata pack"));
  }
  const auto same = [](const pack::PackLayer& packed, const gguf::ExpertLayer& layer) {
    return packed.layer == layer.layer && packed.experts == layer.experts &&
           std::ranges::equal(
               packed.parts, layer.parts, [](const pack::PackPart& a, const gguf::ExpertPart& b) {
                 return a.type == static_cast<uint32_t>(b.type) && a.bytes == b.bytes_per_expert;
               });
  };
  if (!std::ranges::equal(header.layers, geometry.layers, same)) {
    return absl::FailedPreconditionError(
        "the pack's layers, experts or types are not those of the model; make it again with "
        "strata pack");
  }
  Places places;
  for (size_t l = 0; l < header.layers.size(); ++l) {
    const pack::PackLayer& from = header.layers[l];
    LayerPlaces layer;
    layer.layer = from.layer;
    layer.experts = from.experts;
    layer.contiguous = true;
    for (size_t p = 0; p < from.parts.size(); ++p) {
      const pack::PackPart& part = from.parts[p];
      const gguf::ExpertPart& in_model = geometry.layers[l].parts[p];
      if (part.layout == quant::WeightLayout::kRows8 &&
          (in_model.row_bytes == 0 ||
           part.bytes / in_model.row_bytes % quant::kInterleavedRows != 0)) {
        return absl::FailedPreconditionError(
            absl::StrCat("the pack says that rows of layer ", from.layer,
                         " are interleaved, which are no multiple of ", quant::kInterleavedRows,
                         "; make it again with strata pack"));
      }
      layer.parts.push_back({0, from.offset + part.start, from.stride, part.bytes, in_model.type,
                             in_model.row_bytes, part.layout});
    }
    places.push_back(std::move(layer));
  }
  return places;
}

absl::StatusOr<ExpertFiles> FindExpertFiles(const gguf::ExpertGeometry& geometry,
                                            const shm::Fingerprint& fingerprint,
                                            const std::vector<std::vector<std::string>>& mirrors,
                                            const std::vector<std::string>& packs) {
  if (packs.size() > kMostCopies || mirrors.size() >= kMostCopies) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMostCopies, " copies of the experts are configured"));
  }
  ExpertFiles found;
  const std::vector<std::string>& model = geometry.files;
  if (packs.empty()) {
    found.files = model;
    found.files_per_copy = static_cast<uint32_t>(model.size());
    found.places = PlacesInModel(geometry);
    for (const std::vector<std::string>& mirror : mirrors) {
      if (mirror.size() != model.size()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "mirror '", mirror.empty() ? "" : mirror.front(), "' has ", mirror.size(),
            " files, the model has ", model.size(), "; copy the model's files as they are"));
      }
      found.files.insert(found.files.end(), mirror.begin(), mirror.end());
      ++found.copies;
    }
    return found;
  }
  std::optional<pack::PackHeader> first;
  for (const std::string& path : packs) {
    STRATA_ASSIGN_OR_RETURN(pack::PackHeader header, pack::ReadHeader(path));
    absl::StatusOr<Places> places = PlacesInPack(header, geometry, fingerprint);
    if (!places.ok()) return Annotate(places.status(), absl::StrCat("'", path, "'"));
    if (!first) {
      first = std::move(header);
      found.places = *std::move(places);
    } else if (header != *first) {
      return absl::FailedPreconditionError(
          absl::StrCat("'", path, "' differs from '", packs.front(),
                       "'; packs on several drives must be copies of one another"));
    }
  }
  found.files = packs;
  found.files_per_copy = 1;
  found.copies = static_cast<uint32_t>(packs.size());
  for (const pack::PackLayer& layer : first->layers) {
    found.checksums.insert(found.checksums.end(), layer.checksums.begin(), layer.checksums.end());
  }
  found.fallback = PlacesInModel(geometry);
  for (LayerPlaces& layer : found.fallback) {
    for (PartPlace& part : layer.parts) part.file += found.copies;
  }
  found.files.insert(found.files.end(), model.begin(), model.end());
  return found;
}

}  // namespace strata::expertstore
