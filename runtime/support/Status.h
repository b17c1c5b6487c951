// Errors of the runtime as values: one line that says what, where and what to
// do.
#pragma once
#include <cassert>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tessera {

/// Success, or one line of text for the user (lower case, no final period).
class [[nodiscard]] Status {
public:
  Status() = default;
  static Status success() { return Status(); }
  template <typename... Args>
  static Status error(fmt::format_string<Args...> format, Args &&...args) {
    Status status;
    status.text = fmt::format(format, std::forward<Args>(args)...);
    return status;
  }
  bool ok() const { return !text; }
  /// The error text; empty on success.
  const std::string &message() const {
    static const std::string none;
    return text ? *text : none;
  }

private:
  std::optional<std::string> text;
};

/// A value or an error.
template <typename T> class [[nodiscard]] StatusOr {
public:
  StatusOr(T value) : held(std::move(value)) {}
  StatusOr(Status status) : error(std::move(status)) {
    assert(!error.ok() && "an error StatusOr needs an error");
  }
  bool ok() const { return held.has_value(); }
  const Status &status() const { return error; }
  const std::string &message() const { return error.message(); }
  // The value may be asked for only after ok(), as in std::expected.
  // NOLINTBEGIN(bugprone-unchecked-optional-access)
  T &operator*() { return *held; }
  const T &operator*() const { return *held; }
  T *operator->() { return &*held; }
  const T *operator->() const { return &*held; }
  T take() { return std::move(*held); }
  // NOLINTEND(bugprone-unchecked-optional-access)

private:
  Status error;
  std::optional<T> held;
};

} // namespace tessera

/// Returns the error of `expression` from the calling function.
#define TESSERA_RETURN_IF_ERROR(expression)                                    \
  do {                                                                         \
    if (::tessera::Status status_ = (expression); !status_.ok())               \
      return status_;                                                          \
  } while (false)
