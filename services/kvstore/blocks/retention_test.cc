#include "services/kvstore/blocks/retention.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "services/kvstore/blocks/block_index.h"

namespace strata::kvstore {
namespace {

constexpr uint64_t kMinute = 60'000;
constexpr uint32_t kBlock = 256;

TEST(Retention, ValueFallsWithAgeAndBytesAndRisesWithStanding) {
  const auto value = [](Standing standing, uint64_t bytes, uint64_t age) {
    return RetentionValue(KindOf(standing, kBlock, bytes), age);
  };
  EXPECT_GT(value(Standing::kOnce, 1000, kMinute), value(Standing::kOnce, 1000, 2 * kMinute));
  EXPECT_GT(value(Standing::kOnce, 1000, kMinute), value(Standing::kOnce, 2000, kMinute));
  EXPECT_GT(value(Standing::kOnce, 1000, 0), value(Standing::kSuperseded, 1000, 0));
  EXPECT_GT(value(Standing::kReturned, 1000, 10 * kMinute), value(Standing::kOnce, 1000, 0));
  EXPECT_LT(value(Standing::kReturned, 1000, 100 * kMinute), value(Standing::kOnce, 1000, 0))
      << "nothing is kept for ever";
}

using Path = std::vector<uint64_t>;  // the texts of a conversation's blocks

std::vector<uint32_t> TokensOf(uint64_t text) {
  std::vector<uint32_t> tokens(kBlock, static_cast<uint32_t>(text));
  tokens[0] = static_cast<uint32_t>(text >> 32);
  return tokens;
}

BlockId ChildOf(const BlockId& parent, uint64_t text) {
  return state::ChildId(parent, TokensOf(text));
}

// What a store does with a prompt, and nothing else of it. Both cut leaves only.
class Cache {
 public:
  virtual ~Cache() = default;
  // The blocks of the prompt that are there.
  virtual size_t Plan(const Path& prompt, uint64_t now) = 0;
  virtual void Save(const Path& conversation, uint64_t now) = 0;
};

class ByValue : public Cache {
 public:
  explicit ByValue(uint64_t budget) : budget_(budget) {}

  size_t Plan(const Path& prompt, uint64_t now) override {
    BlockId id;
    size_t hit = 0;
    for (const uint64_t text : prompt) {
      const BlockId next = ChildOf(id, text);
      if (index_.Get(next) == nullptr) break;
      index_.CountUse(next, now);
      id = next;
      ++hit;
    }
    if (hit > 0) index_.Protect(id, now);
    return hit;
  }
  void Save(const Path& conversation, uint64_t now) override {
    BlockId parent;
    for (uint32_t i = 0; i < conversation.size(); ++i) {
      const BlockId id = ChildOf(parent, conversation[i]);
      if (index_.Get(id) != nullptr) {
        index_.Touch(id, now);
      } else {
        while (index_.size() >= budget_) index_.Erase(*index_.NextVictim(now, parent));
        BlockRecord record;
        record.parent = parent;
        record.first_token = i * kBlock;
        record.tokens = TokensOf(conversation[i]);
        record.bytes = 1'000'000;
        record.last_used_ms = now;
        index_.Insert(id, std::move(record));
        index_.NoteTurn(id);
      }
      parent = id;
    }
  }

 private:
  const uint64_t budget_;
  BlockIndex index_;
};

class ByTime : public Cache {
 public:
  explicit ByTime(uint64_t budget) : budget_(budget) {}

  size_t Plan(const Path& prompt, uint64_t now) override {
    BlockId id;
    size_t hit = 0;
    for (const uint64_t text : prompt) {
      const BlockId next = ChildOf(id, text);
      if (!nodes_.contains(next)) break;
      Touch(next, now);
      id = next;
      ++hit;
    }
    return hit;
  }
  void Save(const Path& conversation, uint64_t now) override {
    BlockId parent;
    for (const uint64_t text : conversation) {
      const BlockId id = ChildOf(parent, text);
      if (!nodes_.contains(id)) {
        while (nodes_.size() >= budget_) Evict(parent);
        nodes_[id] = {parent, 0, now};
        order_.insert({now, id});
        if (nodes_.contains(parent)) ++nodes_[parent].children;
      }
      Touch(id, now);
      parent = id;
    }
  }

 private:
  struct Node {
    BlockId parent;
    int children = 0;
    uint64_t used = 0;
  };
  void Touch(const BlockId& id, uint64_t now) {
    order_.erase({nodes_[id].used, id});
    nodes_[id].used = now;
    order_.insert({now, id});
  }
  void Evict(const BlockId& keep) {
    for (const auto& [used, id] : order_) {
      if (nodes_[id].children > 0 || id == keep) continue;
      const BlockId victim = id;
      if (const auto parent = nodes_.find(nodes_[victim].parent); parent != nodes_.end()) {
        --parent->second.children;
      }
      order_.erase({nodes_[victim].used, victim});
      nodes_.erase(victim);
      return;
    }
  }

  const uint64_t budget_;
  std::map<BlockId, Node> nodes_;
  std::set<std::pair<uint64_t, BlockId>> order_;
};

// Some agents at work. Each of their turns comes with side requests: a title, probes of a file. Now
// and then a turn's answer comes back in other words, and somebody asks a single question.
struct Traffic {
  uint32_t conversations = 8;
  uint32_t side_requests = 4;    // with a turn
  uint32_t side_blocks = 4;      // of each
  double reworded = 0.3;         // turns
  double single_question = 0.3;  // with a turn
};

struct Result {
  uint64_t asked = 0;
  uint64_t hit = 0;
  double share() const { return static_cast<double>(hit) / static_cast<double>(asked); }
};

Result Simulate(const Traffic& traffic, Cache& cache) {
  std::mt19937 random(7);
  const auto chance = [&](double p) { return random() % 1000 < p * 1000; };
  uint64_t next_text = 1000;
  const auto append = [&](Path& path, size_t blocks) {
    for (size_t i = 0; i < blocks; ++i) path.push_back(next_text++);
  };
  Path system(40);
  for (size_t i = 0; i < system.size(); ++i) system[i] = i + 1;
  std::vector<Path> agents(traffic.conversations, system);
  for (Path& agent : agents) append(agent, 20);
  Result result;
  const auto ask = [&](const Path& prompt, uint64_t now) {
    result.asked += prompt.size();
    result.hit += cache.Plan(prompt, now);
  };
  uint64_t now = 1'700'000'000'000;
  for (int turn = 0; turn < 1500; ++turn) {
    now += random() % kMinute;
    // Some people are busier than others.
    Path& agent = agents[std::min(random() % agents.size(), random() % agents.size())];
    if (chance(traffic.reworded) && agent.size() > 60) {
      agent.pop_back();
      append(agent, 1);
    }
    append(agent, 1 + random() % 2);
    if (agent.size() > 160) {  // a new task
      agent = system;
      append(agent, 20);
    }
    ask(agent, now);
    append(agent, 1);  // the answer
    cache.Save(agent, now);
    for (uint32_t i = 0; i < traffic.side_requests; ++i) {
      Path side = {900 + i};
      append(side, traffic.side_blocks);
      ask(side, now += 500);
      cache.Save(side, now);
    }
    if (chance(traffic.single_question)) {
      Path question = system;
      append(question, 10);
      ask(question, now += 500);
      cache.Save(question, now);
    }
  }
  return result;
}

TEST(Retention, HitsMoreThanLeastRecentlyUsed) {
  for (const uint64_t budget : {300, 500, 700}) {
    ByValue by_value(budget);
    ByTime by_time(budget);
    const Result value = Simulate({}, by_value);
    const Result time = Simulate({}, by_time);
    std::printf("%llu blocks: %.1f %% of the tokens asked for were stored; by time alone %.1f %%\n",
                static_cast<unsigned long long>(budget), 100 * value.share(), 100 * time.share());
    EXPECT_GT(value.share(), time.share()) << budget;
  }
}

// A lunch hour of titles and probes.
TEST(Retention, SideRequestsDoNotEvictAMainConversation) {
  ByValue by_value(200);
  ByTime by_time(200);
  for (Cache* cache : {static_cast<Cache*>(&by_value), static_cast<Cache*>(&by_time)}) {
    Path main(100);
    for (size_t i = 0; i < main.size(); ++i) main[i] = i + 1;
    uint64_t now = 1'700'000'000'000;
    cache->Save(main, now);
    now += kMinute;
    EXPECT_EQ(cache->Plan(main, now), 100u);
    main.push_back(101);
    cache->Save(main, now);
    for (uint64_t i = 0; i < 600; ++i) {
      now += kMinute / 10;
      Path side = {5000, 10'000 + 2 * i, 10'001 + 2 * i};
      cache->Plan(side, now);
      cache->Save(side, now);
    }
    EXPECT_EQ(cache->Plan(main, now), cache == &by_value ? 101u : 0u);
  }
}

// The same in a layout whose state can be used at checkpoints only, of 20 blocks' size each.
TEST(Retention, SideRequestsDoNotEvictAMainConversationsCheckpoints) {
  constexpr uint64_t kBytes = 100'000;
  constexpr uint64_t kBudget = 400 * kBytes;
  BlockIndex index;
  uint64_t now = 1'700'000'000'000;
  const auto insert = [&](const BlockId& id, BlockRecord record, uint64_t bytes) {
    while (index.bytes() + bytes > kBudget) index.Erase(*index.NextVictim(now, record.parent));
    record.bytes = bytes;
    record.last_used_ms = now;
    const bool checkpoint = record.kind == Kind::kCheckpoint;
    index.Insert(id, std::move(record));
    index.NoteTurn(id);
    if (checkpoint) index.NoteCheckpoint(id);
  };
  // A prompt goes on from the furthest checkpoint on its way, if there is one; then everything up
  // to its end is there, with a checkpoint. Returns the tokens that need not be read.
  const auto ask = [&](const Path& prompt) {
    std::vector<BlockId> ids = {{}};
    for (const uint64_t text : prompt) ids.push_back(ChildOf(ids.back(), text));
    const auto name = [](const BlockId& id) {
      return state::CheckpointId(id, state::Lineage::kExact, {});
    };
    size_t reached = prompt.size();
    while (reached > 0 && index.Get(name(ids[reached])) == nullptr) --reached;
    for (size_t i = 1; i <= reached; ++i) index.CountUse(ids[i], now);
    if (reached > 0) index.CountUse(name(ids[reached]), now);
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (index.Get(ids[i + 1]) != nullptr) continue;
      BlockRecord record;
      record.parent = ids[i];
      record.first_token = static_cast<uint32_t>(i) * kBlock;
      record.tokens = TokensOf(prompt[i]);
      insert(ids[i + 1], std::move(record), kBytes);
    }
    if (index.Get(name(ids.back())) == nullptr) {
      BlockRecord record;
      record.parent = ids.back();
      record.first_token = static_cast<uint32_t>(prompt.size()) * kBlock;
      record.kind = Kind::kCheckpoint;
      insert(name(ids.back()), std::move(record), 20 * kBytes);
    }
    return reached;
  };
  Path system(40);
  for (size_t i = 0; i < system.size(); ++i) system[i] = i + 1;
  ask(system);
  Path main = system;
  uint64_t next_text = 1000;
  size_t asked = 0;
  size_t reached = 0;
  for (int turn = 0; turn < 60; ++turn) {
    now += kMinute;
    main.push_back(next_text++);
    asked += main.size() - 1;
    reached += ask(main);
    for (int i = 0; i < 4; ++i) {
      ask({900, next_text, next_text + 1});
      next_text += 2;
    }
    if (turn % 20 == 10) {
      now += kMinute;
      Path other = system;
      other.push_back(next_text++);
      EXPECT_EQ(ask(other), system.size())
          << "a new conversation begins at the system prompt's end";
    }
  }
  EXPECT_EQ(reached, asked) << "every turn went on from the one before it";
  EXPECT_LE(index.bytes(), kBudget);
}

TEST(Retention, SupersededEndsGoFirst) {
  ByValue cache(50);
  Path main(40);
  for (size_t i = 0; i < main.size(); ++i) main[i] = i + 1;
  Path other = {100, 101};
  uint64_t now = 1'700'000'000'000;
  cache.Save(other, now);
  cache.Save(main, now);
  Path reworded = main;
  reworded.back() = 77;
  reworded.push_back(78);
  now += kMinute;
  cache.Plan(reworded, now);
  cache.Save(reworded, now);
  for (uint64_t i = 0; i < 7; ++i) cache.Save({1000 + i}, now);  // one too many
  EXPECT_EQ(cache.Plan(main, now), 39u) << "the end that was not gone on with";
  EXPECT_EQ(cache.Plan(other, now), 2u) << "though it is older";
  EXPECT_EQ(cache.Plan(reworded, now), 41u);
}

TEST(Retention, WhatAPlanPromisedStays) {
  BlockIndex index;
  const auto insert = [&](uint64_t text, uint64_t used) {
    BlockRecord record;
    record.tokens = TokensOf(text);
    record.bytes = 1000;
    record.last_used_ms = used;
    index.Insert(ChildOf({}, text), std::move(record));
  };
  insert(1, 10 * kMinute);
  insert(2, 10 * kMinute + 1);
  const uint64_t now = 11 * kMinute;
  EXPECT_EQ(index.NextVictim(now), ChildOf({}, 1));
  index.Protect(ChildOf({}, 1), now);
  EXPECT_EQ(index.NextVictim(now), ChildOf({}, 2));
  index.Protect(ChildOf({}, 2), now);
  EXPECT_TRUE(index.NextVictim(now)) << "better than nothing new at all";
  EXPECT_EQ(index.NextVictim(now + 2 * kMinute), ChildOf({}, 1)) << "not for ever";
}

}  // namespace
}  // namespace strata::kvstore
