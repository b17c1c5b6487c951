// Numbers with units, as people write them in cluster files and flags.
#pragma once
#include <string>
#include <string_view>

#include "runtime/support/Status.h"

namespace tessera::planner {

/// The dimension of a number. Prefixes are k, M, G, T, P (powers of 1000) and
/// Ki, Mi, Gi, Ti (of 1024), case as shown.
enum class Unit {
  Count,          ///< "1e12", "1T"
  Bytes,          ///< "80GiB"
  BytesPerSecond, ///< "25GB/s"; bits count an eighth: "200Gb/s"
  Seconds,        ///< "5us", "2s", "10min", "8.2d"; also ns, ms, h
  FlopsPerSecond, ///< "312TFLOP/s"
};

/// A positive, finite number in bytes, seconds, ... of `unit`. A unit is
/// required, except for counts: "25" could be bytes per second or gigabits.
/// Errors say what is wrong but not where.
StatusOr<double> parseQuantity(std::string_view text, Unit unit);

/// For people: "21.6 GB", "25.0 GB/s", "4.40 ms", "312.0 TFLOP/s".
std::string formatBytes(double bytes);
std::string formatRate(double bytesPerSecond);
std::string formatSeconds(double seconds);

} // namespace tessera::planner
