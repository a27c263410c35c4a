/* Visibility of the operators' functions. */
#ifndef QKVFUSE_ACL_ACLNNOP_ACLNN_UTIL_H_
#define QKVFUSE_ACL_ACLNNOP_ACLNN_UTIL_H_

#if defined(__GNUC__)
#define ACLNN_API __attribute__((visibility("default")))
#else
#define ACLNN_API
#endif

#endif /* QKVFUSE_ACL_ACLNNOP_ACLNN_UTIL_H_ */
