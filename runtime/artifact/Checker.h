// What the files of the validator share; nobody else includes this.
#pragma once
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Validate.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::artifact {

/// An artifact being validated, and where in it the first defect lies.
class Checker {
public:
  explicit Checker(const Artifact &artifact) : artifact(artifact) {}

  /// A defect of the table at `where`.
  template <typename... Args>
  Status fail(const void *where, fmt::format_string<Args...> format,
              Args &&...args) {
    at = static_cast<const std::byte *>(where);
    return Status::error(format, std::forward<Args>(args)...);
  }

  const Artifact &artifact;
  const std::byte *at = nullptr;
};

/// Puts "PREFIX: " before an error's text, so that contexts are formatted only
/// when there is something to say.
template <typename... Args>
Status within(const Status &inner, fmt::format_string<Args...> format,
              Args &&...args) {
  return Status::error("{}: {}",
                       fmt::format(format, std::forward<Args>(args)...),
                       inner.message());
}

#define TESSERA_RETURN_WITHIN(expression, ...)                                 \
  do {                                                                         \
    if (::tessera::Status status_ = (expression); !status_.ok())               \
      return ::tessera::artifact::within(status_, __VA_ARGS__);                \
  } while (false)

/// Whether `value` is one of the schema's values.
template <typename Enum> bool isKnown(Enum value) {
  return value >= Enum::MIN && value <= Enum::MAX;
}

/// Whether the elements lie at multiples of their size. The FlatBuffers
/// verifier (2.0.8) looks only at the alignment of a vector's length; its
/// builder aligns no elements where there are none.
template <typename T> bool isAligned(const flatbuffers::Vector<T> *vector) {
  return !vector || vector->size() == 0 ||
         reinterpret_cast<std::uintptr_t>(vector->Data()) % sizeof(T) == 0;
}

/// Of the state, or of a program's arena or io space.
std::uint64_t spaceBytes(const Artifact &artifact, const Program *program,
                         Space space);

/// 1 to kMaxNameBytes graphic ASCII characters without quotes and backslashes:
/// what can stand in any error line, JSON or file name unescaped.
bool isName(std::string_view text);
/// [A-Za-z_][A-Za-z0-9_]*, at most kMaxNameBytes.
bool isIdentifier(std::string_view text);
/// No control characters; tab and newline too are refused.
bool isLine(std::string_view text);
/// Lines: no control characters but newlines.
bool isText(std::string_view text);
/// A name for an error line: itself if it is fit to print.
std::string_view printable(std::string_view text);

/// A list of tensors that must lie in `space` with one of two roles.
struct TensorList {
  const flatbuffers::Vector<flatbuffers::Offset<Tensor>> *tensors;
  std::string_view what; // "state tensor"
  Space space;
  std::uint64_t spaceBytes;
  bool (*fits)(Role role);
};
Status validateTensors(Checker &checker, const TensorList &list);
/// Kernels and code objects of one kind of device.
Status validateCode(Checker &checker, const DeviceCode &code);
Status validateProgram(Checker &checker, const DeviceCode &code,
                       const Program &program);

/// Reports the second of two tables of equal names.
template <typename Table, typename NameOf>
Status
checkUnique(Checker &checker,
            const flatbuffers::Vector<flatbuffers::Offset<Table>> &tables,
            std::string_view what, NameOf nameOf) {
  std::vector<const Table *> sorted(tables.begin(), tables.end());
  std::sort(sorted.begin(), sorted.end(), [&](const Table *a, const Table *b) {
    return nameOf(*a) < nameOf(*b);
  });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (nameOf(*sorted[i - 1]) == nameOf(*sorted[i]))
      return checker.fail(sorted[i], "{} '{}' is listed twice", what,
                          nameOf(*sorted[i]));
  return Status::success();
}

} // namespace tessera::artifact
