// The keys of recipe.yaml as data; private to the reader.
#pragma once
#include <variant>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "runtime/recipe/Recipe.h"

namespace tessera::recipe {

/// An enumeration as the table sees it: its words, and where the value stands.
struct Choice {
  std::span<const std::string_view> words;
  void *value;
  int (*get)(const void *);
  void (*set)(void *, int);
};

/// Bounds are inclusive, except that `below` excludes the upper one.
struct Integer {
  int64_t *value;
  int64_t least, most;
};
struct Real {
  double *value;
  double least, most;
  bool below = false;
};
struct MaybeReal {
  std::optional<double> *value;
  double least, most;
  bool below = false;
};
struct Pair {
  std::array<double, 2> *value;
  double least, most;
  bool below = false;
};
struct Path {
  std::optional<std::string> *value;
};
/// One or more words of a-z, A-Z, 0-9, '_' and '.'.
struct Words {
  std::vector<std::string> *value;
  bool orNone = false;     ///< or an empty list
  bool hasNumbers = false; ///< words are word=number
};

/// Any number of gates (MetricGate.h), as strings.
struct Gates {
  std::vector<std::string> *value;
};

using Slot =
    std::variant<Choice, Integer, Real, MaybeReal, Pair, Path, Words, Gates>;
struct Field {
  std::string_view key; ///< "optimizer.lr"
  Slot slot;
};

/// The schema over `recipe`, which it points into, in the order of printing.
std::vector<Field> schema(Recipe &recipe);

/// Reads `node` into the slot; the error says what, not where.
Status store(const YAML::Node &node, const Slot &slot);

/// The slot's value as YAML on one line.
std::string printed(const Slot &slot);

/// A node as an error message quotes it.
std::string shown(const YAML::Node &node);

} // namespace tessera::recipe
