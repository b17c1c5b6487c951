#include "runtime/serve/Followers.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tessera::serve {

/// Padding is the last member of an event with a delta, and strings cannot
/// contain such quotes.
static std::string unpadded(std::string_view data, std::string_view name) {
  if (!name.ends_with(".delta"))
    return std::string(data);
  std::size_t at = data.rfind(R"(,"obfuscation":")");
  return at == data.npos ? std::string(data)
                         : std::string(data.substr(0, at)) + "}";
}

void Followers::event(std::string_view data, std::string_view name) {
  int64_t number = next++;
  if (followers.empty())
    return;
  std::string plain = unpadded(data, name);
  // A reader that is too slow is dropped in event(), and removed here.
  for (const Follower &each : std::vector<Follower>(followers))
    if (number > each.after)
      each.reply->event(each.obfuscate ? data : plain, name);
}

void Followers::end(std::span<const ServerEvent> last) {
  for (const Follower &each : std::exchange(followers, {})) {
    int64_t had = std::min(std::max(each.after + 1 - next, int64_t(0)),
                           int64_t(last.size()));
    each.reply->end(last.subspan(std::size_t(had)));
  }
}

void Followers::add(const std::shared_ptr<HttpReply> &reply, int64_t after,
                    bool obfuscate, std::span<const ServerEvent> past) {
  reply->onGone = [weak = weak_from_this(), leaving = reply.get()] {
    if (auto self = weak.lock())
      std::erase_if(self->followers, [&](const Follower &each) {
        return each.reply.get() == leaving;
      });
  };
  followers.push_back({reply, after, obfuscate});
  reply->begin(past);
}

} // namespace tessera::serve
