#include "common/trace/routing_trace.h"

#include <cstdio>
#include <iterator>
#include <optional>

#include "common/base/status.h"

namespace strata::trace {
namespace {

constexpr uint32_t kMostLayers = 4096;
constexpr uint32_t kMostExperts = 65536;

void AppendVarint(uint32_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) *out += static_cast<char>(value | 0x80);
  *out += static_cast<char>(value);
}

class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return at_ == bytes_.size(); }
  size_t at() const { return at_; }
  void Skip(size_t count) { at_ += count; }
  uint8_t Byte() { return static_cast<uint8_t>(bytes_[at_++]); }
  // nullopt: the bytes end, or the number has more than 32 bits.
  std::optional<uint32_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (empty()) return std::nullopt;
      const uint8_t byte = Byte();
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) {
        return value <= UINT32_MAX ? std::optional(static_cast<uint32_t>(value)) : std::nullopt;
      }
    }
    return std::nullopt;
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

absl::Status Wrong(size_t at, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("routing trace, byte ", at, ": ", A(what)));
}

// The record at `bytes`; nullopt: it is cut off.
absl::StatusOr<std::optional<Batch>> ReadBatch(const RoutingTrace& trace, Bytes& bytes) {
  Batch batch;
  const size_t start = bytes.at();
  const uint8_t kind = bytes.Byte();
  if (kind != 'D' && kind != 'P') return Wrong(start, "a record begins with neither D nor P");
  batch.prompt = kind == 'P';
  const auto layer = bytes.Varint();
  const auto count = bytes.Varint();
  // A number that is too long also ends here, unless bytes are left: then it is damage.
  const auto cut_off = [&]() -> absl::StatusOr<std::optional<Batch>> {
    if (bytes.empty()) return std::optional<Batch>();
    return Wrong(bytes.at(), "a number has more than 32 bits");
  };
  if (!layer || !count) return cut_off();
  if (*layer >= trace.layers || *count == 0 || *count > trace.experts) {
    return Wrong(start, absl::StrCat("layer ", *layer, " with ", *count, " experts"));
  }
  batch.layer = *layer;
  uint64_t next = 0;
  for (uint32_t i = 0; i < *count; ++i) {
    const auto gap = bytes.Varint();
    const auto tokens = bytes.Varint();
    if (!gap || !tokens) return cut_off();
    const uint64_t expert = next + *gap;
    if (expert >= trace.experts || *tokens == UINT32_MAX) {
      return Wrong(start, absl::StrCat("expert ", expert, " of ", trace.experts));
    }
    batch.uses.push_back({static_cast<uint32_t>(expert), *tokens + 1});
    next = expert + 1;
  }
  return std::optional(std::move(batch));
}

}  // namespace

absl::StatusOr<RoutingTrace> Parse(std::string_view bytes) {
  RoutingTrace trace;
  const std::string header(bytes.substr(0, bytes.substr(0, 200).find('\n')));
  int length = 0;
  if (std::sscanf(header.c_str(), "strata-routing-trace 1 %u %u %u%n", &trace.layers,
                  &trace.experts, &trace.used, &length) != 3 ||
      static_cast<size_t>(length) != header.size() || header.size() == bytes.size()) {
    return absl::InvalidArgumentError("this is not a routing trace (of version 1)");
  }
  if (trace.layers == 0 || trace.layers > kMostLayers || trace.experts == 0 ||
      trace.experts > kMostExperts || trace.used == 0 || trace.used > trace.experts) {
    return absl::InvalidArgumentError(absl::StrCat("routing trace of ", trace.layers, " layers, ",
                                                   trace.experts, " experts, ", trace.used,
                                                   " used: these numbers make no sense"));
  }
  Bytes rest(bytes);
  rest.Skip(header.size() + 1);
  while (!rest.empty()) {
    STRATA_ASSIGN_OR_RETURN(std::optional<Batch> batch, ReadBatch(trace, rest));
    if (!batch) break;
    trace.batches.push_back(*std::move(batch));
  }
  return trace;
}

absl::StatusOr<RoutingTrace> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read the routing trace '", path, "'"));
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  absl::StatusOr<RoutingTrace> trace = Parse(bytes);
  if (!trace.ok()) return Annotate(trace.status(), absl::StrCat("'", path, "'"));
  return trace;
}

absl::StatusOr<std::unique_ptr<Writer>> Writer::Create(const std::string& path, uint32_t layers,
                                                       uint32_t experts, uint32_t used) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << "strata-routing-trace 1 " << layers << " " << experts << " " << used << "\n";
  if (!file.flush()) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write the routing trace '", path, "' (compute.trace_file)"));
  }
  return std::unique_ptr<Writer>(new Writer(std::move(file)));
}

void Writer::Write(bool prompt, uint32_t layer, std::span<const Use> uses) {
  record_.assign(1, prompt ? 'P' : 'D');
  AppendVarint(layer, &record_);
  AppendVarint(static_cast<uint32_t>(uses.size()), &record_);
  uint32_t next = 0;
  for (const Use& use : uses) {
    AppendVarint(use.expert - next, &record_);
    AppendVarint(use.tokens - 1, &record_);
    next = use.expert + 1;
  }
  file_.write(record_.data(), static_cast<std::streamsize>(record_.size()));
}

}  // namespace strata::trace
