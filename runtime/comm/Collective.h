// What ranks can do together, as data. Everything is flat: contiguous buffers
// of one element type with a count for each member; compiled code packs.
#pragma once
#include "runtime/artifact/ElementTypes.h"
#include "runtime/comm/Group.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::comm {

using artifact::ElementType;

enum class CollectiveKind : std::uint8_t {
  barrier,
  broadcast,
  allReduce,
  allGather,
  reduceScatter,
  allToAll,
  exchange, ///< point to point; the only one that not all members enter
};

/// How elements of several members are reduced: always in the order of members,
/// ((m0 ∘ m1) ∘ m2) ∘ …, for any timing, algorithm and segmentation, so results
/// have the same bits in every run and all_reduce equals reduce_scatter with
/// all_gather. bf16 and f16 are accumulated in fp32 and rounded once; integers
/// wrap around. max and min of a NaN are NaN; of equal ones (-0 and 0), the
/// earlier member's.
enum class Reduction : std::uint8_t { sum, max, min };

/// One collective, or this rank's part in an exchange. Owns nothing but its
/// counts; counts are in elements. Made by the functions below.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  ElementType type = ElementType::u8;
  Reduction reduction = Reduction::sum;
  const std::byte *input = nullptr;
  std::byte *output = nullptr;
  /// all_to_all, exchange: to each member, to the peer. Otherwise what members
  /// agree on: all_gather, reduce_scatter: of each member; all_reduce,
  /// broadcast: the one count.
  std::vector<std::uint64_t> counts = {};
  std::vector<std::uint64_t> receiveCounts = {}; ///< all_to_all, exchange
  /// all_to_all in pieces: where each begins, in elements; then there are as
  /// many counts as pieces, equally many for each member, one member after the
  /// other. Empty: one piece for each member, and they follow each other.
  std::vector<std::uint64_t> offsets = {}, receiveOffsets = {};
  int root = -1;                     ///< broadcast: a member
  int sendTo = -1, receiveFrom = -1; ///< exchange: members; -1: none
  /// If set, another library moves the data (nccl/NcclChannel.h): the channel
  /// compares headers, and waits until this says that it is done.
  std::function<StatusOr<bool>()> isDone = {};

  static Collective barrier() { return {}; }
  /// From the member `root` to all others.
  static Collective broadcast(ElementType type, void *buffer,
                              std::uint64_t count, int root);
  /// In place.
  static Collective allReduce(ElementType type, Reduction reduction,
                              void *buffer, std::uint64_t count);
  /// input: [counts[me]]; output: the inputs of all members, concatenated in
  /// order. The input may be this member's part of the output, but must not
  /// overlap it otherwise.
  static Collective allGather(ElementType type, const void *input, void *output,
                              std::vector<std::uint64_t> counts);
  /// input: [sum of counts]; output: [counts[me]], the reduction of all
  /// members' parts for this one. The output may be that part of the input.
  static Collective reduceScatter(ElementType type, Reduction reduction,
                                  const void *input, void *output,
                                  std::vector<std::uint64_t> counts);
  /// Part m of the input, of sendCounts[m], is sent to member m; part m of the
  /// output, of receiveCounts[m], is received from it. Buffers must not
  /// overlap.
  static Collective allToAll(ElementType type, const void *input, void *output,
                             std::vector<std::uint64_t> sendCounts,
                             std::vector<std::uint64_t> receiveCounts);
  /// Sends to one member and receives from one, the same or another, at the
  /// same time. If sendTo is this member, receiveFrom must be, too. Exchanges
  /// between two members match in the order in which each started them.
  static Collective exchange(ElementType type, const void *input,
                             std::uint64_t sendCount, int sendTo, void *output,
                             std::uint64_t receiveCount, int receiveFrom);
  static Collective send(ElementType type, const void *input,
                         std::uint64_t count, int to);
  static Collective receive(ElementType type, void *output, std::uint64_t count,
                            int from);

  bool isExchange() const { return kind == CollectiveKind::exchange; }
};

/// Why member `me` of a group cannot do this.
Status checkCollective(const Collective &collective, const Group &group,
                       int me);

/// "all_reduce", …; of an exchange "send", "recv" or "exchange".
std::string_view nameOf(const Collective &collective);

/// What members compare before data moves, and what reports show.
struct Signature {
  std::uint64_t sequence = 0; ///< from 0, in this channel
  std::uint64_t group = 0;    ///< Group::hash
  std::uint64_t counts = 0;   ///< hash of the counts that all members share
  std::uint64_t history = 0;  ///< hash over all collectives of the channel
  std::uint64_t elements = 0; ///< all; of an exchange what is sent
  std::int32_t channel = 0;
  std::int32_t root = -1;
  CollectiveKind kind = CollectiveKind::barrier;
  ElementType type = ElementType::u8;
  Reduction reduction = Reduction::sum;
  std::uint8_t unused[5] = {}; // no padding: it goes over the wire

  /// "all_reduce #17 f32[4096]", "all_reduce(max) #18 bf16[3]"
  std::string text() const;
};

/// `history` is that of the collective before.
Signature signatureOf(const Collective &collective, const Group &group,
                      int channel, std::uint64_t sequence,
                      std::uint64_t history);

/// Nothing if `mine` and `theirs` are one collective, otherwise a line that
/// names both: what the ranks call, or in what else they differ.
Status compare(const Signature &mine, int myRank, const Signature &theirs,
               int theirRank, const Group &group);

} // namespace tessera::comm
