// Collectives as data: what is refused, what is the same, and the arithmetic.
#include "runtime/comm/Collective.h"
#include "runtime/comm/Reduce.h"
#include "runtime/support/Floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tessera::comm {
namespace {

TEST(Group, NumbersRanksInItsOrder) {
  const StatusOr<Group> group = Group::of({4, 0, 2}, 5);
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->rankOf(0), 4);
  EXPECT_EQ(group->memberOf(2), 2);
  EXPECT_EQ(group->memberOf(1), std::nullopt);
  EXPECT_EQ(group->text(), "{4,0,2}");
  EXPECT_NE(group->hash(), Group::of({0, 2, 4}, 5)->hash());
  EXPECT_EQ(Group::world(4).text(), "{0,1,2,3}");
  EXPECT_EQ(Group::world(1024).text(), "{0..1023}");
  EXPECT_EQ(Group::of({9, 1, 2, 3, 4, 5, 7}, 10)->text(), "{9,1..5,7}");
}

TEST(Group, RefusesWhatIsNone) {
  EXPECT_EQ(Group::of({}, 4).message(), "a group needs a rank at least");
  EXPECT_EQ(Group::of({4}, 4).message(),
            "a group names rank 4, but the job has ranks 0 to 3");
  EXPECT_EQ(Group::of({1, 1}, 4).message(), "a group names rank 1 twice");
}

std::string refusal(const Collective &collective) {
  return checkCollective(collective, Group::world(3), 1).message();
}

TEST(Collective, RefusesWhatCannotBeDone) {
  std::byte bytes[64];
  const auto f32 = ElementType::f32;
  EXPECT_EQ(refusal(Collective::allGather(f32, bytes, bytes, {1, 2})),
            "all_gather: has 2 and 0 counts where the group {0,1,2} needs 3 "
            "and 0");
  EXPECT_EQ(refusal(Collective::allToAll(f32, bytes, bytes, {1, 2, 3}, {1})),
            "all_to_all: has 3 and 1 counts where the group {0,1,2} needs 3 "
            "and 3");
  EXPECT_EQ(
      refusal(Collective::allToAll(f32, bytes, bytes, {1, 2, 3}, {1, 1, 1})),
      "all_to_all: member 1 sends 2 elements to itself and receives 1");
  EXPECT_EQ(refusal(Collective::broadcast(f32, bytes, 1, 3)),
            "broadcast: the root is member 3, but the group {0,1,2} has "
            "members 0 to 2");
  EXPECT_EQ(refusal(Collective::send(f32, bytes, 1, -2)),
            "send: the receiver is member -2, but the group {0,1,2} has "
            "members 0 to 2");
  EXPECT_EQ(refusal(Collective::send(f32, bytes, 1, -1)),
            "exchange: names neither a receiver nor a sender");
  EXPECT_EQ(refusal(Collective::receive(f32, bytes, 1, 1)),
            "exchange: rank 1 sends to itself or receives from itself, but "
            "not both");
  EXPECT_EQ(refusal(Collective::exchange(f32, bytes, 1, 1, bytes, 2, 1)),
            "exchange: rank 1 sends 1 elements to itself and receives 2");
  EXPECT_EQ(
      refusal(Collective::allReduce(ElementType::i1, Reduction::sum, bytes, 1)),
      "all_reduce: i1 has no sum: use max or min");
  EXPECT_EQ(refusal(Collective::allReduce(f32, Reduction::sum, bytes,
                                          std::uint64_t(1) << 62)),
            "all_reduce: has more elements than memory can hold");
  EXPECT_EQ(refusal(Collective::allGather(
                f32, bytes, bytes,
                {1, std::numeric_limits<std::uint64_t>::max(), 1})),
            "all_gather: has more elements than memory can hold");
  EXPECT_EQ(refusal(Collective::allReduce(static_cast<ElementType>(99),
                                          Reduction::sum, bytes, 1)),
            "all_reduce: unknown element type 99");
}

/// What rank 2 is told when rank 0 calls `theirs`.
std::string difference(const Collective &mine, const Collective &theirs,
                       std::uint64_t theirHistory = 0) {
  const Group group = Group::world(3);
  return compare(signatureOf(mine, group, 0, 17, 0), 2,
                 signatureOf(theirs, group, 0, 17, theirHistory), 0, group)
      .message();
}

TEST(Signature, TellsCollectivesApart) {
  std::byte bytes[64];
  const auto f32 = ElementType::f32;
  const auto sum = Reduction::sum;
  const Collective reduce = Collective::allReduce(f32, sum, bytes, 64);
  EXPECT_EQ(difference(reduce, reduce), "");
  constexpr const char *order =
      " of group {0,1,2}: every member has to make the same calls in the same "
      "order";
  EXPECT_EQ(
      difference(reduce,
                 Collective::allGather(f32, bytes, bytes, {64, 32, 32})),
      std::string("rank 0 calls all_gather #17 f32[128], rank 2 all_reduce #17 "
                  "f32[64]") +
          order);
  EXPECT_EQ(
      difference(reduce, Collective::allReduce(f32, Reduction::max, bytes, 64)),
      std::string("rank 0 calls all_reduce(max) #17 f32[64], rank 2 "
                  "all_reduce #17 f32[64]") +
          order);
  EXPECT_EQ(difference(reduce, Collective::allReduce(ElementType::bf16, sum,
                                                     bytes, 64)),
            std::string("rank 0 calls all_reduce #17 bf16[64], rank 2 "
                        "all_reduce #17 f32[64]") +
                order);
  EXPECT_EQ(difference(reduce, reduce, 1),
            "rank 0 calls all_reduce #17 f32[64], rank 2 all_reduce #17 "
            "f32[64] of group {0,1,2}: their earlier collectives differ");
  EXPECT_EQ(difference(Collective::allGather(f32, bytes, bytes, {1, 2, 3}),
                       Collective::allGather(f32, bytes, bytes, {3, 2, 1})),
            "rank 0 calls all_gather #17 f32[6], rank 2 all_gather #17 f32[6] "
            "of group {0,1,2}: their counts of members differ");
  EXPECT_EQ(difference(Collective::broadcast(f32, bytes, 1, 0),
                       Collective::broadcast(f32, bytes, 1, 1)),
            "rank 0 calls broadcast #17 f32[1], rank 2 broadcast #17 f32[1] of "
            "group {0,1,2}: their roots differ");
  // What each member sends is its own affair.
  EXPECT_EQ(
      difference(Collective::allToAll(f32, bytes, bytes, {1, 2, 3}, {1, 2, 3}),
                 Collective::allToAll(f32, bytes, bytes, {4, 5, 6}, {4, 5, 6})),
      "");
}

TEST(Signature, TellsGroupsApart) {
  const Group mine = Group::world(3), theirs = Group::of({0, 2, 1}, 3).take();
  const Collective barrier = Collective::barrier();
  EXPECT_EQ(compare(signatureOf(barrier, mine, 0, 0, 0), 2,
                    signatureOf(barrier, theirs, 0, 0, 0), 0, mine)
                .message(),
            "rank 0 calls barrier #0, rank 2 barrier #0 of group {0,1,2}: they "
            "mean different groups or name them in another order");
}

/// One element of each member, reduced.
template <typename T>
T reduceOne(ElementType type, Reduction reduction, const std::vector<T> &from) {
  std::vector<const std::byte *> contributions;
  for (const T &value : from)
    contributions.push_back(reinterpret_cast<const std::byte *>(&value));
  T result{};
  reduceInOrder(type, reduction, contributions,
                reinterpret_cast<std::byte *>(&result), 1);
  return result;
}

TEST(Reduce, AddsInTheOrderOfMembers) {
  // 2^24 + 1 is 2^24 in fp32, so the order shows.
  const float big = 0x1p24F;
  EXPECT_EQ(reduceOne<float>(ElementType::f32, Reduction::sum, {big, 1, 1}),
            big);
  EXPECT_EQ(reduceOne<float>(ElementType::f32, Reduction::sum, {1, 1, big}),
            big + 2);
}

TEST(Reduce, RoundsSmallFloatsOnce) {
  // 256 + 1 is 256 in bf16: sums of bf16 would never leave it.
  const std::vector<std::uint16_t> values = {floatToBf16(256), floatToBf16(1),
                                             floatToBf16(1)};
  EXPECT_EQ(bf16ToFloat(reduceOne(ElementType::bf16, Reduction::sum, values)),
            258.0F);
  const std::vector<std::uint16_t> halves = {floatToF16(2048), floatToF16(1),
                                             floatToF16(1)};
  EXPECT_EQ(f16ToFloat(reduceOne(ElementType::f16, Reduction::sum, halves)),
            2050.0F);
}

TEST(Reduce, WrapsIntegersAround) {
  const auto most = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(
      reduceOne<std::int32_t>(ElementType::i32, Reduction::sum, {most, 1, 1}),
      std::numeric_limits<std::int32_t>::min() + 1);
  EXPECT_EQ(reduceOne<std::int8_t>(ElementType::i8, Reduction::max, {-5, 3, 2}),
            3);
  EXPECT_EQ(
      reduceOne<std::uint8_t>(ElementType::u8, Reduction::min, {200, 3, 255}),
      3);
}

TEST(Reduce, KeepsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::max, Reduction::min}) {
    EXPECT_TRUE(
        std::isnan(reduceOne<float>(ElementType::f32, reduction, {nan, 1, 2})));
    EXPECT_TRUE(
        std::isnan(reduceOne<float>(ElementType::f32, reduction, {1, nan, 2})));
    EXPECT_TRUE(
        std::isnan(reduceOne<float>(ElementType::f32, reduction, {1, 2, nan})));
    // Of equal ones, the first.
    EXPECT_TRUE(std::signbit(
        reduceOne<float>(ElementType::f32, reduction, {-0.0F, 0.0F})));
  }
}

TEST(Reduce, WorksInPlaceOnAnyAddress) {
  // Longer than a block, behind an odd number of bytes.
  constexpr std::size_t count = 3000;
  std::vector<std::byte> mine(1 + count * 8), theirs(1 + count * 8);
  const auto at = [](std::vector<std::byte> &bytes, std::size_t i) {
    return bytes.data() + 1 + i * 8;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const auto a = static_cast<double>(i), b = 0.5 * static_cast<double>(i);
    std::memcpy(at(mine, i), &a, 8);
    std::memcpy(at(theirs, i), &b, 8);
  }
  const std::byte *contributions[] = {at(theirs, 0), at(mine, 0)};
  reduceInOrder(ElementType::f64, Reduction::sum, contributions, at(mine, 0),
                count);
  for (std::size_t i = 0; i < count; ++i) {
    double sum;
    std::memcpy(&sum, at(mine, i), 8);
    ASSERT_EQ(sum, 1.5 * static_cast<double>(i));
  }
}

} // namespace
} // namespace tessera::comm
