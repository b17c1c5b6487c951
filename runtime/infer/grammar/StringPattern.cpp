#include "runtime/infer/grammar/StringPattern.h"
#include "runtime/support/Text.h"

namespace tessera::grammar {

StatusOr<uint32_t> StringPattern::add(uint32_t from, std::string_view pattern) {
  uint32_t open = grammar.addText(from, "\"");
  // Any characters may surround the match, unless anchors forbid it.
  auto anything = [&](uint32_t before) {
    uint32_t at = grammar.addNode();
    grammar.addSkip(before, at);
    grammar.addCall(at, json.character(), at);
    return at;
  };
  auto close = regex.add(open, pattern, anything);
  if (!close.ok())
    return close.status();
  return grammar.addText(*close, "\"");
}

//===--- formats ----------------------------------------------------------===//

std::optional<std::string> StringPattern::ofFormat(std::string_view format) {
  // February has a 29th in years divisible by four, except most centuries;
  // validators reject the year 0.
  const std::string year = R"((\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000))",
                    leap = R"((\d\d(0[48]|[2468][048]|[13579][26])|)"
                           R"((0[48]|[2468][048]|[13579][26])00))",
                    date = "(" + year + R"(-((0[1-9]|1[0-2])-)" +
                           R"((0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|)" +
                           R"((0[13578]|1[02])-31)|)" + leap + "-02-29)",
                    time = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?)"
                           R"((Z|[+-]([01]\d|2[0-3]):[0-5]\d))",
                    label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?",
                    host = label + R"((\.)" + label + "){0,3}",
                    byte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))",
                    ipv4 = byte + R"((\.)" + byte + "){3}";
  std::string pattern;
  if (format == "date")
    pattern = date;
  else if (format == "time")
    pattern = time;
  else if (format == "date-time")
    pattern = date + "T" + time;
  else if (format == "duration") // RFC 3339, appendix A
    pattern = R"(P(\d+W|(\d+Y(\d+M(\d+D)?)?|\d+M(\d+D)?|\d+D))"
              R"((T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S))?|)"
              R"(T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)))";
  else if (format == "email")
    pattern = "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+){0,7}@" + host;
  else if (format == "hostname")
    pattern = host;
  else if (format == "ipv4")
    pattern = ipv4;
  else if (format == "ipv6") { // with all groups, or "::" for some
    const std::string group = "[0-9a-fA-F]{1,4}";
    pattern = "(" + group + ":){7}" + group + "|::";
    for (int before = 0; before < 8; ++before)
      for (int after = before == 0 ? 1 : 0; before + after < 8; ++after) {
        pattern += "|";
        for (int i = 0; i < before; ++i)
          pattern += (i > 0 ? ":" : "") + group;
        pattern += "::";
        for (int i = 0; i < after; ++i)
          pattern += (i > 0 ? ":" : "") + group;
      }
  } else if (format == "uuid")
    pattern = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  else
    return std::nullopt;
  return "^(" + pattern + ")$";
}

} // namespace tessera::grammar
