// The fake driver of CUDA in a test's process.
#pragma once
#include <string>

namespace tessera::test {

/// From the first get() on, devices "cuda:N" and cuBLASLt are the fake's.
class FakeCuda {
public:
  static FakeCuda &get();

  /// What was made and not destroyed, line by line.
  std::string leaks() const { return leaksOf(); }
  /// What a real driver refuses or does not promise, line by line.
  std::string misuse() const { return misuseOf(); }
  /// How often that function was called since the last reset.
  unsigned calls(const char *function) const { return callsOf(function); }
  /// Forgets calls, misuse and the error that ended the GPU's service.
  void reset() const { resetOf(); }

private:
  FakeCuda();

  const char *(*leaksOf)();
  const char *(*misuseOf)();
  unsigned (*callsOf)(const char *function);
  void (*resetOf)();
};

} // namespace tessera::test
