#include "services/expertstore/arena/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/base/memory_info.h"
#include "common/base/status.h"
#include "common/shm/memfd.h"

namespace strata::expertstore {
namespace {

constexpr uint64_t kHuge = 2 << 20;
constexpr uint64_t kSmall = 4096;
constexpr uint64_t kStep = 64 << 20;  // of one call that makes pages
constexpr uint64_t kPieceLimit = 1ull << 30;
// MADV_POPULATE_WRITE, since Linux 5.14; Debian's older libc headers lack the name.
constexpr int kPopulateWrite = 23;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, since Linux 6.1

uint64_t ReservedHugeBytes() {
  std::ifstream in("/proc/meminfo");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (MemInfoField(text, "Hugepagesize") != kHuge) return 0;
  return MemInfoField(text, "HugePages_Free").value_or(0) * kHuge;
}

struct Memory {
  UniqueFd fd;
  MemoryMap map;
};

absl::StatusOr<Memory> Reserve(uint64_t bytes, bool huge_tlb) {
  Memory memory;
  STRATA_ASSIGN_OR_RETURN(memory.fd, shm::CreateMemfd("strata-arena", bytes, huge_tlb));
  STRATA_ASSIGN_OR_RETURN(memory.map, MemoryMap::Shared(memory.fd.get(), bytes, true));
  return memory;
}

// Makes the pages of [from, to) present; returns up to where they are.
uint64_t Populate(MemoryMap& map, uint64_t from, uint64_t to) {
  for (uint64_t at = from; at < to; at += kStep) {
    const uint64_t bytes = std::min(kStep, to - at);
    while (madvise(map.data() + at, bytes, kPopulateWrite) != 0) {
      if (errno == EINVAL) return to;  // a kernel before 5.14 populates on first use
      if (errno != EINTR && errno != EAGAIN) return at;
    }
  }
  return to;
}

// As Populate for the whole of `map`, in huge pages as far as there are any; counts their bytes.
//
// What becomes of advice (MADV_HUGEPAGE) for a memfd is up to shmem_enabled in
// /sys/kernel/mm/transparent_hugepage, which says "never" unless somebody changed it. With pages of
// 4 KiB one thread reads a tenth to a third less. Collapsing works whatever it says, except "deny",
// and is faster than populating with small pages if it is done for many huge pages in one call.
uint64_t PopulateHuge(MemoryMap& map, uint64_t* huge_bytes) {
  bool collapse = true;
  for (uint64_t at = 0; at < map.size(); at += kStep) {
    const uint64_t end = std::min(at + kStep, map.size());
    // Only where there is a page already can pages be collapsed.
    for (uint64_t page = at; page < end && collapse; page += kHuge) {
      const uint64_t got = Populate(map, page, page + kSmall);
      if (got != page + kSmall) return got;
    }
    if (collapse) {
      if (madvise(map.data() + at, end - at, kCollapse) == 0) {
        *huge_bytes += end - at;
      } else {
        collapse = errno == EAGAIN || errno == EBUSY;  // a page was in use; else it cannot be done
      }
    }
    const uint64_t got = Populate(map, at, end);
    if (got != end) return got;
  }
  return map.size();
}

}  // namespace

absl::StatusOr<Arena> Arena::Create(uint64_t bytes, uint64_t least) {
  bytes = (bytes + kHuge - 1) / kHuge * kHuge;
  Arena arena;
  if (ReservedHugeBytes() >= bytes) {
    absl::StatusOr<Memory> memory = Reserve(bytes, /*huge_tlb=*/true);
    if (memory.ok() && Populate(memory->map, 0, bytes) == bytes) {
      arena.fd_ = std::move(memory->fd);
      arena.map_ = std::move(memory->map);
      arena.huge_bytes_ = bytes;
      arena.page_bytes_ = kHuge;
      return arena;
    }
  }
  for (uint64_t size = bytes; size >= std::max(least, kHuge);) {
    uint64_t got = size / 2;
    {
      absl::StatusOr<Memory> memory = Reserve(size, /*huge_tlb=*/false);
      if (memory.ok()) {
        // Advice: it spares the collapsing where it is heeded.
        madvise(memory->map.data(), size, MADV_HUGEPAGE);
        arena.huge_bytes_ = 0;
        got = PopulateHuge(memory->map, &arena.huge_bytes_);
        if (got == size) {
          arena.fd_ = std::move(memory->fd);
          arena.map_ = std::move(memory->map);
          return arena;
        }
      }
    }  // what was got is given back before the next try
    // A little less than what was there, for everybody else's sake.
    const uint64_t next = std::min(got - got / 8, size - kHuge) / kHuge * kHuge;
    LogWarning("the system refused ", size, " bytes for the expert arena; trying ", next);
    size = next;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot get ", least,
                   " bytes of memory for the smallest useful expert arena; free some "
                   "memory or raise the limit of this service"));
}

absl::Status Arena::SealFor(bool sealed) {
  STRATA_RETURN_IF_ERROR(shm::Seal(fd_.get(), shm::SealKind::kFixedSize));
  if (sealed) {
    STRATA_ASSIGN_OR_RETURN(client_fd_, shm::ReadOnlyDescriptor(fd_.get()));
  }
  return absl::OkStatus();
}

absl::Status Arena::Release(uint64_t from, uint64_t to) {
  from = (from + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  to = to / page_bytes_ * page_bytes_;
  if (from >= to) return absl::OkStatus();
  while (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                   static_cast<off_t>(to - from)) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "cannot give memory of the arena back");
  }
  return absl::OkStatus();
}

bool Arena::Take(uint64_t from, uint64_t to) {
  from = from / page_bytes_ * page_bytes_;
  to = std::min((to + page_bytes_ - 1) / page_bytes_ * page_bytes_, size());
  return Populate(map_, from, to) == to;
}

uint64_t Arena::held_bytes() const {
  struct stat info;
  return fstat(fd_.get(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : size();
}

std::vector<std::span<std::byte>> RegistrationPieces(const SlotPlan& plan, std::byte* arena) {
  std::vector<std::span<std::byte>> pieces;
  for (const shm::ClassRecord& record : plan.classes) {
    const uint64_t per_piece = kPieceLimit / record.slot_bytes;
    if (per_piece == 0) return {};  // slots above the limit: unregistered reads work, too
    for (uint64_t slot = 0; slot < record.slots; slot += per_piece) {
      const uint64_t count = std::min<uint64_t>(per_piece, record.slots - slot);
      pieces.emplace_back(arena + record.arena_offset + slot * record.slot_bytes,
                          count * record.slot_bytes);
    }
  }
  return pieces;
}

}  // namespace strata::expertstore
