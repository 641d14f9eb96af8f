# libintattention, static and shared: the core behind include/intattention.h, and its installation.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(GLOB capi_sources CONFIGURE_DEPENDS src_capi/*.cpp)
add_library(intattention_capi OBJECT ${capi_sources})
target_link_libraries(intattention_capi PUBLIC intattention_core)
target_include_directories(intattention_capi PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_definitions(intattention_capi PRIVATE IA_BUILDING)
target_compile_options(intattention_capi PRIVATE -O2 -fvisibility=hidden -fvisibility-inlines-hidden -Wall -Wextra
                                                 -Wshadow -Wconversion -Wno-sign-conversion)
if(INTATTENTION_WERROR)
  target_compile_options(intattention_capi PRIVATE -Werror)
endif()

foreach(kind shared static)
  string(TOUPPER ${kind} type)
  string(REPLACE "_shared" "" name intattention_${kind})
  add_library(intattention_${kind} ${type} $<TARGET_OBJECTS:intattention_core> $<TARGET_OBJECTS:intattention_capi>)
  set_target_properties(intattention_${kind} PROPERTIES OUTPUT_NAME intattention EXPORT_NAME ${name}
                                                        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_include_directories(intattention_${kind} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(intattention_${kind} INTERFACE cxx_std_17)
endforeach()
target_link_libraries(intattention_shared PRIVATE Threads::Threads)
target_link_libraries(intattention_static PUBLIC Threads::Threads)
if(INTATTENTION_SANITIZE)
  target_link_options(intattention_shared PRIVATE -fsanitize=${INTATTENTION_SANITIZE})
elseif(NOT APPLE)
  # Nothing but ia_* is seen from outside: not the templates of the C++ runtime either, and no symbol is left open.
  target_link_options(intattention_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map
                                                  -Wl,--no-undefined)
  set_target_properties(intattention_shared PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/intattention)
install(TARGETS intattention_shared intattention_static EXPORT intattention)
install(FILES include/intattention.h include/intattention.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT intattention NAMESPACE intattention:: DESTINATION ${package_dir} FILE intattentionTargets.cmake)
configure_package_config_file(cmake/intattentionConfig.cmake.in ${PROJECT_BINARY_DIR}/intattentionConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/intattentionConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/intattentionConfig.cmake ${PROJECT_BINARY_DIR}/intattentionConfigVersion.cmake
        DESTINATION ${package_dir})

if(APPLE)
  set(cxx_runtime -lc++)
else()
  set(cxx_runtime "-lstdc++ -lm -pthread")
endif()
# Relative to the .pc file itself, so that cmake --install --prefix and moved trees work.
file(RELATIVE_PATH prefix_from_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/intattention.pc.in ${PROJECT_BINARY_DIR}/intattention.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/intattention.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
