// Kernels with planted defects: none gets by, and the reports say what is
// wrong. A problem's run(seed, defect) is empty where nothing was noticed.
#pragma once
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace tessera::device {

/// Every defect of the enumeration but its first, which is none.
template <typename Defect, typename Problem>
void expectAllCaught(Problem problem) {
  for (int defect = 1; defect < static_cast<int>(Defect::last); ++defect)
    for (std::uint64_t seed = 0; seed < 3; ++seed)
      EXPECT_NE(problem.run(seed, static_cast<Defect>(defect)), "")
          << "defect " << defect << ", seed " << seed;
}

/// A defect, and a part of the message that names it.
template <typename Defect> struct Report {
  Defect defect;
  const char *part;
};

template <typename Defect, std::size_t Count, typename Problem>
void expectReported(const Report<Defect> (&reports)[Count], Problem problem) {
  for (const Report<Defect> &report : reports) {
    std::string message = problem.run(1, report.defect);
    EXPECT_NE(message.find(report.part), std::string::npos)
        << "defect " << static_cast<int>(report.defect) << ": " << message;
  }
}

} // namespace tessera::device
