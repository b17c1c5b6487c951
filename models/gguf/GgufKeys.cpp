#include "models/gguf/GgufKeys.h"
#include "runtime/support/Text.h"

#include <cmath>
#include <cstdlib>

namespace tessera::models {

double shortest(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

const GgufValue *GgufKeys::find(const std::string &key) {
  read.insert(key);
  return file.find(key);
}

bool GgufKeys::get(const std::string &key, int64_t &to, int64_t most) {
  const GgufValue *value = find(key);
  int64_t number = 0;
  if (!value)
    return false;
  if (!value->get(number) || number < 0 || number > most) {
    fail(key, "must be a whole number from 0 to {}", most);
    return false;
  }
  to = number;
  return true;
}

bool GgufKeys::get(const std::string &key, double &to) {
  const GgufValue *value = find(key);
  double number = 0;
  if (!value)
    return false;
  if (!value->get(number) || !std::isfinite(number)) {
    fail(key, "must be a number");
    return false;
  }
  to = value->kind() == GgufKind::F32 ? shortest(static_cast<float>(number))
                                      : number;
  return true;
}

bool GgufKeys::get(const std::string &key, bool &to) {
  const GgufValue *value = find(key);
  if (value && !value->get(to))
    fail(key, "must be a bool");
  return value && ok();
}

bool GgufKeys::get(const std::string &key, std::string_view &to) {
  const GgufValue *value = find(key);
  if (!value)
    return false;
  std::string_view text;
  if (!value->get(text) || !isUtf8(text)) {
    fail(key, "must be a string of UTF-8");
    return false;
  }
  to = text;
  return true;
}

bool GgufKeys::getUniform(const std::string &key, int64_t &to, int64_t most) {
  const GgufValue *value = find(key);
  if (!value || !value->isArray())
    return get(key, to, most);
  int64_t all = -1;
  for (size_t i = 0; i < value->size(); ++i) {
    int64_t each = -1;
    if (!value->at(i).get(each) || each < 0 || each > most)
      fail(key, "must have whole numbers from 0 to {}", most);
    else if (all >= 0 && each != all)
      fail(key, "differs from layer to layer ({}, {}), which is not supported",
           all, each);
    all = each;
    if (!ok())
      return false;
  }
  if (value->size() == 0)
    fail(key, "must not be empty");
  else
    to = all;
  return ok();
}

int64_t GgufKeys::need(const std::string &key, int64_t most) {
  int64_t value = 1;
  if (!getUniform(key, value, most) && ok())
    fail(key, "is missing");
  return value;
}

const GgufValue *GgufKeys::array(const std::string &key, GgufKind element) {
  const GgufValue *value = find(key);
  if (value && (!value->isArray() || value->elementKind() != element)) {
    fail(key, "must be an array of {}", name(element));
    return nullptr;
  }
  return value;
}

void GgufKeys::refuseUnread(std::string_view prefix) {
  for (const auto &[key, value] : file.metadata())
    if (key.starts_with(prefix) && !read.contains(key))
      fail(key, "is not supported");
}

} // namespace tessera::models
