// Schedules by name. All come from one list scheduler (ListScheduler.cpp) that
// knows none of them: a row of figures, a Policy, makes it produce one.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "parallelism/pipeline/Costs.h"
#include "parallelism/pipeline/Schedule.h"

namespace tessera::pipeline {

/// Where stage s of a chain stands, p ranks.
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

/// What a rank does that could do several things.
enum class Prefer : uint8_t {
  Forward,   ///< F whenever there is one (GPipe)
  Backward,  ///< B or I whenever there is one
  Alternate, ///< what was not done last, F and backward in turn
};

/// Which of a rank's two chains a move of a bidirectional schedule is about:
/// the one that enters the pipeline in the rank's own half, or the other.
enum class Side : uint8_t { None, Own, Other };

/// F of one side, a backward of one side, or both as OVERLAP.
struct Move {
  Side forward = Side::None, backward = Side::None;
};

struct Shape {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1; ///< stages a rank holds of one chain
};

/// Moves that a rank repeats constant + perHalfRanks·p/2 + perDepth·d +
/// perHalfMicrobatches·m/2 times; d is the rank's distance from the nearer end.
struct Phase {
  std::span<const Move> moves;
  int constant = 0, perHalfRanks = 0, perDepth = 0, perHalfMicrobatches = 0;

  /// Negative where the shape does not have the schedule.
  int count(const Shape &shape, int rank) const;
};

struct Policy {
  std::string_view name;
  std::string_view summary; ///< one line for help texts
  Placement placement = Placement::Loop;
  Prefer prefer = Prefer::Backward;
  bool splitBackward = false; ///< I, and W where a rank would wait
  int minChunks = 1, maxChunks = 1;
  /// Where F and backwards of a rank have a fixed order: which. The scheduler
  /// is left to place W.
  std::span<const Phase> phases = {};
  Limit inFlight; ///< most activations between F and B, or I
  Limit live;     ///< most between F and B, or W
};

/// gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipe: see README.md for
/// their sources, bubbles and memory.
std::span<const Policy> policies();
/// Null where there is none.
const Policy *findPolicy(std::string_view name);

/// The schedule that `policy` gives for `shape`, without transfers: of a few
/// attempts the shortest under `costs`, which are those of its stages.
/// `memory`, in microbatches at one stage, bounds the live activations of each
/// rank further (0: the policy's own bound only). Errors: shapes that the
/// policy does not have, costs that do not fit, memory that is not enough.
StatusOr<Schedule> generate(const Policy &policy, const Shape &shape,
                            const Costs &costs = {}, int memory = 0);
/// The same by name; the error of an unknown one lists what there is.
StatusOr<Schedule> generate(std::string_view policy, const Shape &shape,
                            const Costs &costs = {}, int memory = 0);

} // namespace tessera::pipeline
