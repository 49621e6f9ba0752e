#include "services/compute/state/kv_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "services/compute/cpu/cpu_backend.h"

namespace strata::compute {
namespace {

constexpr int kPages = 12;

class KvCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = CreateCpuBackend({.threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    auto kv = KvCache::Create(*backend_, {.layers = 2, .kv_heads = 1, .head_dim = 4}, kPages);
    ASSERT_TRUE(kv.ok()) << kv.status();
    kv_ = *std::move(kv);
  }
  // What reading these tokens would give: bytes that depend on all of them.
  std::vector<std::byte> StateOf(const state::BlockId& id) const {
    std::vector<std::byte> bytes(kv_->BlockBytes());
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = std::byte(id.bytes[i % id.bytes.size()] + i / id.bytes.size());
    }
    return bytes;
  }
  std::vector<std::byte> Read(int32_t page) {
    std::vector<std::byte> bytes(kv_->BlockBytes());
    kv_->ReadPage(page, bytes);
    return bytes;
  }
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> kv_;
};

std::vector<uint32_t> Tokens(uint32_t first) {
  return std::vector<uint32_t>(KvCache::kPageTokens, first);
}
state::BlockId NameOf(uint32_t n) { return state::ChildId(state::BlockId{}, Tokens(n)); }

TEST_F(KvCacheTest, APublishedPageIsFoundUntilItsMemoryIsNeeded) {
  std::vector<int32_t> first;
  ASSERT_TRUE(kv_->Take(3, first));
  for (uint32_t i = 0; i < 3; ++i) {
    kv_->WritePage(first[i], StateOf(NameOf(i)));
    kv_->Publish(first, i, NameOf(i), Tokens(i));
  }
  EXPECT_EQ(kv_->free_pages(), kPages - 3);
  std::vector<int32_t> second = {*kv_->Share(NameOf(0), Tokens(0))};
  EXPECT_EQ(second[0], first[0]);
  kv_->GiveBack(first);
  EXPECT_EQ(kv_->free_pages(), kPages - 1) << "one is in use";
  EXPECT_EQ(kv_->idle_pages(), 2);
  EXPECT_EQ(kv_->Share(NameOf(7), Tokens(7)), std::nullopt);
  EXPECT_EQ(kv_->Share(NameOf(1), Tokens(2)), std::nullopt) << "a hash alone decides nothing";
  // Everything that is free, but for the page that is to stay longest: the earlier of the two.
  std::vector<int32_t> most;
  ASSERT_TRUE(kv_->Take(kPages - 2, most));
  EXPECT_EQ(kv_->Share(NameOf(2), Tokens(2)), std::nullopt);
  second.push_back(*kv_->Share(NameOf(1), Tokens(1)));
  EXPECT_EQ(Read(second[1]), StateOf(NameOf(1)));
  std::vector<int32_t> none;
  EXPECT_FALSE(kv_->Take(1, none));
  EXPECT_FALSE(kv_->MakeOwn(second, 0)) << "no memory for a copy";
  kv_->GiveBack(most);
  kv_->GiveBack(second);
  EXPECT_EQ(kv_->free_pages(), kPages);
}

TEST_F(KvCacheTest, WritingToASharedPageLeavesTheOthersAsTheyWere) {
  std::vector<int32_t> mine;
  ASSERT_TRUE(kv_->Take(1, mine));
  EXPECT_TRUE(kv_->IsOwn(mine[0]));
  kv_->WritePage(mine[0], StateOf(NameOf(1)));
  kv_->Publish(mine, 0, NameOf(1), Tokens(1));
  EXPECT_FALSE(kv_->IsOwn(mine[0])) << "it can be found at any time";
  std::vector<int32_t> other = {*kv_->Share(NameOf(1), Tokens(1))};
  ASSERT_TRUE(kv_->MakeOwn(other, 0));
  EXPECT_NE(other[0], mine[0]);
  EXPECT_EQ(Read(other[0]), StateOf(NameOf(1)));
  kv_->WriteRows(other, 5, StateOf(NameOf(2)), 5, 3);
  EXPECT_EQ(Read(mine[0]), StateOf(NameOf(1)));
  EXPECT_NE(Read(other[0]), StateOf(NameOf(1)));
  const int32_t kept = other[0];
  ASSERT_TRUE(kv_->MakeOwn(other, 0));
  EXPECT_EQ(other[0], kept) << "its own already";
}

TEST_F(KvCacheTest, TwoThatComputedTheSameHoldItOnce) {
  std::vector<int32_t> a, b;
  ASSERT_TRUE(kv_->Take(1, a) && kv_->Take(1, b));
  for (auto* table : {&a, &b}) {
    kv_->WritePage((*table)[0], StateOf(NameOf(3)));
    kv_->Publish(*table, 0, NameOf(3), Tokens(3));
  }
  EXPECT_EQ(a, b);
  EXPECT_EQ(kv_->free_pages(), kPages - 1);
}

// Random lives of many sequences over few texts: whatever is found is what that text gives, a page
// never changes under a reader, and no page is lost.
TEST_F(KvCacheTest, RandomSharingKeepsEveryState) {
  struct Life {
    std::vector<int32_t> pages;
    std::vector<state::BlockId> expected;
  };
  std::mt19937 random(3);
  std::vector<Life> lives;
  int found = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (lives.size() < 4 && random() % 2 == 0) {
      Life life;
      state::BlockId parent;
      const size_t blocks = 1 + random() % 3;
      std::vector<std::vector<uint32_t>> texts;
      std::vector<state::BlockId> names;
      for (size_t i = 0; i < blocks; ++i) {
        texts.push_back(Tokens(random() % 3));
        names.push_back(parent = state::ChildId(parent, texts.back()));
      }
      size_t shared = 0;
      for (; shared < blocks; ++shared) {
        const auto page = kv_->Share(names[shared], texts[shared]);
        if (!page) break;
        life.pages.push_back(*page);
        ++found;
      }
      if (!kv_->Take(static_cast<int>(blocks - shared), life.pages)) {
        kv_->GiveBack(life.pages);
        continue;
      }
      for (size_t i = shared; i < blocks; ++i) {
        kv_->WritePage(life.pages[i], StateOf(names[i]));
        kv_->Publish(life.pages, i, names[i], texts[i]);
      }
      life.expected = names;
      lives.push_back(std::move(life));
    } else if (!lives.empty()) {
      Life& life = lives[random() % lives.size()];
      const size_t page = random() % life.pages.size();
      switch (random() % 3) {
        case 0:  // writes: a text of its own from here on
          if (kv_->MakeOwn(life.pages, page)) {
            std::vector<uint32_t> own(KvCache::kPageTokens, static_cast<uint32_t>(step + 100));
            life.expected[page] = state::ChildId(life.expected[page], own);
            kv_->WritePage(life.pages[page], StateOf(life.expected[page]));
          }
          break;
        case 1:
          kv_->GiveBack(life.pages);
          std::swap(life, lives.back());
          lives.pop_back();
          break;
        default:
          break;
      }
    }
    int used = 0;
    std::map<int32_t, int> users;
    for (const Life& life : lives) {
      for (size_t i = 0; i < life.pages.size(); ++i) {
        used += users[life.pages[i]]++ == 0 ? 1 : 0;
        ASSERT_EQ(Read(life.pages[i]), StateOf(life.expected[i])) << step;
      }
    }
    ASSERT_EQ(kv_->free_pages(), kPages - used) << step;
  }
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace strata::compute
