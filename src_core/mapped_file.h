// A whole file as read-only memory.
#pragma once

#include <string>

#include "shared_bytes.h"

namespace intattention {

// The file's bytes, unmapped when the last copy of the owner is gone. A file that is shortened while it is mapped
// kills the process. Throws FileError, and ModelFileError if it is empty.
SharedBytes map_file(const std::string& path);

}  // namespace intattention
