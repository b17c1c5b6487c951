// Shapes that every schedule is tried on.
#pragma once
#include <vector>

#include <gtest/gtest.h>

#include "parallelism/pipeline/Check.h"
#include "parallelism/pipeline/Generate.h"
#include "parallelism/pipeline/Lower.h"
#include "parallelism/pipeline/Simulate.h"

namespace tessera::pipeline {

struct Case {
  const Policy *policy;
  Shape shape;
  std::string text() const {
    return fmt::format("{} p={} m={} v={}", policy->name, shape.ranks,
                       shape.microbatches, shape.chunks);
  }
};

/// Every policy with every shape of a grid that it has.
inline std::vector<Case> allCases() {
  std::vector<Case> cases;
  for (const Policy &policy : policies())
    for (int ranks : {1, 2, 3, 4, 5, 8})
      for (int microbatches : {1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24})
        for (int chunks : {1, 2, 3}) {
          if (chunks < policy.minChunks || chunks > policy.maxChunks)
            continue;
          const bool both = policy.placement == Placement::Bidirectional;
          if (both && (ranks % 2 || microbatches % 2))
            continue;
          if (!policy.phases.empty() && microbatches < 2 * ranks - !both)
            continue;
          cases.push_back({&policy, {ranks, microbatches, chunks}});
        }
  return cases;
}

template <typename T> T take(StatusOr<T> value) {
  if (!value.ok()) {
    ADD_FAILURE() << value.message();
    std::abort();
  }
  return value.take();
}

inline Schedule made(std::string_view policy, int ranks, int microbatches,
                     int chunks = 1) {
  return take(generate(policy, {ranks, microbatches, chunks}));
}

} // namespace tessera::pipeline
