#include "runtime/recipe/AdapterRecipe.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace tessera::recipe {

bool isQuantized(AdapterBase base) {
  return base != AdapterBase::Auto && base != AdapterBase::Fp32 &&
         base != AdapterBase::Bf16;
}

bool endsWithName(std::string_view path, std::string_view name) {
  return path.ends_with(name) && (path.size() == name.size() ||
                                  path[path.size() - name.size() - 1] == '.');
}

std::pair<std::string_view, int64_t> rankEntry(std::string_view entry) {
  const std::size_t equals = entry.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return {};
  const std::string_view number = entry.substr(equals + 1);
  int64_t rank = 0;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), rank);
  if (error != std::errc() || end != number.data() + number.size() ||
      rank < 1 || rank > AdapterRecipe::kMostRank)
    return {};
  return {entry.substr(0, equals), rank};
}

int64_t AdapterRecipe::rankOf(std::string_view path) const {
  for (const std::string &entry : ranks)
    if (const auto [name, own] = rankEntry(entry); endsWithName(path, name))
      return own;
  return rank;
}

double AdapterRecipe::scaleOf(std::string_view path) const {
  const auto own = static_cast<double>(rankOf(path));
  return alpha / (scaling == AdapterScaling::Root ? std::sqrt(own) : own);
}

bool AdapterRecipe::saves(std::string_view parameter) const {
  const std::string_view module =
      parameter.substr(0, parameter.rfind('.')); // all of a bare name
  return std::ranges::any_of(modulesToSave, [&](const std::string &name) {
    return endsWithName(module, name);
  });
}

} // namespace tessera::recipe
