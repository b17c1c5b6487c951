// Schedules by name. One list scheduler (ListScheduler.cpp) generates all of
// them from a row of parameters, a Policy.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "parallelism/pipeline/Costs.h"
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// The rank of stage s of a chain, for p ranks.
enum class Placement : uint8_t {
  Loop,          ///< s mod p: chunk after chunk in the same direction
  Zigzag,        ///< back and forth: with two chunks a V
  Bidirectional, ///< two chains of p stages in opposite directions
};

/// A bound of a rank r, in stages' worth of activations (a microbatch at one
/// stage is 1): constant + perRanks·p + perRank·r + perChunk·(v−1)·p.
struct Limit {
  int constant = 0, perRanks = 0, perRank = 0, perChunk = 0;
  bool unlimited = false;

  /// INT_MAX where unlimited.
  int of(int ranks, int rank, int chunks) const;
};

/// What a rank prefers among several ready instructions.
enum class Prefer : uint8_t {
  Forward,   ///< F whenever there is one (GPipe)
  Backward,  ///< B or I whenever there is one
  Alternate, ///< F and backward alternately
};

/// Which of a rank's two stages a move is about: the one that is nearer to the
/// beginning of its chain, or the other. Of a bidirectional schedule these are
/// of two chains, in a V of one.
enum class Side : uint8_t { None, Own, Other };

/// F of one side, a backward of one side, or both as OVERLAP.
struct Move {
  Side forward = Side::None, backward = Side::None;
};

struct Shape {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1; ///< stages per rank of one chain
};

/// Moves that a rank repeats constant + perRanks·n + perDepth·d +
/// perMicrobatches·b times. In a V n = p, b = m, and d is the rank. A
/// bidirectional schedule is two of them, one from each end: n = p/2, b = m/2,
/// and d is the distance from the nearer end.
struct Phase {
  std::span<const Move> moves;
  int constant = 0, perRanks = 0, perDepth = 0, perMicrobatches = 0;

  /// Negative if the schedule does not exist for the shape.
  int count(Placement placement, const Shape &shape, int rank) const;
};

struct Policy {
  std::string_view name;
  std::string_view summary; ///< one line of help
  Placement placement = Placement::Loop;
  Prefer prefer = Prefer::Backward;
  bool splitBackward = false; ///< I, and W where a rank would wait
  int minChunks = 1, maxChunks = 1;
  /// The order of F and backwards of a rank, if it is fixed. The scheduler then
  /// only inserts W.
  std::span<const Phase> phases = {};
  Limit inFlight; ///< most activations between F and B, or I
  Limit live;     ///< most between F and B, or W
};

/// gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipe, dualpipev: README.md has
/// their sources, bubbles and memory.
std::span<const Policy> policies();
/// Null if the name is unknown.
const Policy *findPolicy(std::string_view name);

/// Whether `policy` has a schedule for `shape`.
Status checkShape(const Policy &policy, const Shape &shape);

/// Whether `blocks` blocks of a model make `stages` stages: each has one.
Status checkStages(int64_t stages, int64_t blocks);

/// The schedule of `policy` for `shape`, without transfers: of a few attempts
/// the shortest under `costs`, which are those of its stages. `memory`, in
/// microbatches at one stage, further bounds the live activations of each rank
/// (0: only the policy's bound). Errors: shapes that the policy does not
/// support, costs of other sizes, too little memory.
StatusOr<Schedule> generate(const Policy &policy, const Shape &shape,
                            const Costs &costs = {}, int memory = 0);
/// The same by name; the error for an unknown name lists the known ones.
StatusOr<Schedule> generate(std::string_view policy, const Shape &shape,
                            const Costs &costs = {}, int memory = 0);

} // namespace tessera::pipeline
