#include "runtime/data/chat/Packer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

using namespace tessera::chat;

namespace {
/// Rows of next-fit: what a row of arriving items takes without looking back.
std::size_t nextFitRows(const std::vector<uint32_t> &lengths,
                        uint32_t capacity) {
  std::size_t rows = 0;
  uint32_t room = 0;
  for (uint32_t length : lengths) {
    if (length > room) {
      ++rows;
      room = capacity;
    }
    room -= length;
  }
  return rows;
}

/// Best fit by trying every row.
std::vector<uint32_t> slowBestFit(std::vector<uint32_t> lengths,
                                  uint32_t capacity) {
  std::sort(lengths.rbegin(), lengths.rend());
  std::vector<uint32_t> rooms;
  for (uint32_t length : lengths) {
    uint32_t *best = nullptr;
    for (uint32_t &room : rooms)
      if (room >= length && (!best || room < *best))
        best = &room;
    if (!best)
      best = &rooms.emplace_back(capacity);
    *best -= length;
  }
  std::sort(rooms.begin(), rooms.end());
  return rooms;
}
} // namespace

TEST(Packer, EachItemOnceAndNoRowOverfull) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const uint32_t capacity = 1 + random() % 200;
    std::vector<uint32_t> lengths(random() % 300);
    for (uint32_t &length : lengths)
      length = 1 + random() % (random() % 2 ? capacity : 1 + capacity / 4);
    const auto rows = packBestFit(lengths, capacity);

    std::vector<int> seen(lengths.size());
    std::vector<uint32_t> rooms;
    for (const auto &row : rows) {
      uint32_t total = 0;
      for (uint32_t item : row) {
        ++seen[item];
        total += lengths[item];
      }
      ASSERT_GT(total, 0u);
      ASSERT_LE(total, capacity);
      rooms.push_back(capacity - total);
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), long(seen.size()));

    std::sort(rooms.begin(), rooms.end());
    EXPECT_EQ(rooms, slowBestFit(lengths, capacity));
    EXPECT_LE(rows.size(), nextFitRows(lengths, capacity));
    const double least =
        double(std::accumulate(lengths.begin(), lengths.end(), uint64_t(0))) /
        capacity;
    EXPECT_LE(double(rows.size()), 2 * least + 1);
  }
}

TEST(Packer, IsDeterministicAndKeepsOrderAmongEquals) {
  EXPECT_EQ(packBestFit(std::vector<uint32_t>{3, 5, 3, 5, 2}, 8),
            (std::vector<std::vector<uint32_t>>{{1, 0}, {3, 2}, {4}}));
  EXPECT_TRUE(packBestFit({}, 8).empty());
}
