// What this processor can execute, and what the operating system saves for us.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The vector features that code objects may name. A feature is present only if
/// cpuid reports it and XCR0 says that the system saves its registers.
class CpuFeatures {
public:
  /// Asks cpuid and xgetbv, and Linux for the use of AMX where there is AMX. No
  /// feature on a machine that is not x86-64.
  static CpuFeatures detect();
  /// A made-up processor, for tests. Names must be known.
  static CpuFeatures of(const std::vector<std::string_view> &names);

  bool has(std::string_view name) const;
  /// The same processor but for one feature.
  CpuFeatures without(std::string_view name) const;
  /// Present features in the order of knownNames().
  std::vector<std::string_view> names() const;
  /// "avx2", "avx512_vnni", …: the spelling of /proc/cpuinfo.
  static const std::vector<std::string_view> &knownNames();
  /// The processor's brand string, for reports.
  static std::string brand();

private:
  unsigned present = 0; // bit i: knownNames()[i]
};

} // namespace tessera
